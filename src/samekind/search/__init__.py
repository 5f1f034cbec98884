"""Query: the most alike by learned similarity."""
