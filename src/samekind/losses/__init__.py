"""Losses: pure functions from tensors to tensors, without state."""
