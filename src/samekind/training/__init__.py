"""Training: the loop that all methods share, its schedules, checkpoints and log records."""
