"""The active model, its predictions for all items, and what is computed from them."""
