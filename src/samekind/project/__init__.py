"""Asking a run what is alike: questions in, a picture and a table out."""
