"""Typed columns of tables, made from the cells of text files, from data frames and from Arrow tables."""
