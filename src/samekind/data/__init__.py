"""Data: arrays in, batches out. Knows no method."""
