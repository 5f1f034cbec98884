"""Training: the one loop, its schedules, and what it records."""
