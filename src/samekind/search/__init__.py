"""Search: pairwise similarities, the most similar items, and a kernel from the learned similarity."""
