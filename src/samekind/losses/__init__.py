"""Losses: functions from tensors to tensors, which keep no state."""
