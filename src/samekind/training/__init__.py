"""Training: the loop that all methods share, its learning-rate schedules, its checkpoints and its log records."""
