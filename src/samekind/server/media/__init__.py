"""Images that the page shows."""
