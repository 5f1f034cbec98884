"""The active model, its predictions for all items, and what the page computes from them: search, ranking and audit."""
