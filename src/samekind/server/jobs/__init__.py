"""Work in child processes: refits and background analysis."""
