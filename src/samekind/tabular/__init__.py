"""Features of tables: decides how each column is used, and encodes numbers, categories, dates and texts.

Saved as JSON and arrays.
"""
