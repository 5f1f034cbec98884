"""Export and import of labels."""
