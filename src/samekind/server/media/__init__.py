"""Images and texts of items, as the page shows them."""
