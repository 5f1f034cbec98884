"""Columns of tables with their types: from the cells of a text file, from data frames and from Arrow."""
