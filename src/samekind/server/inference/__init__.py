"""The active model, its predictions for all items, and what the page computes from these: search, sort orders and audit."""
