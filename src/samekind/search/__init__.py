"""Search: similarities of pairs, the most similar items, and a kernel made from the learned similarity."""
