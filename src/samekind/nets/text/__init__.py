"""Text encoders: from strings to features. Nothing here depends on files or tables."""
