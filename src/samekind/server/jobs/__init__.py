"""Work in child processes: refits, and the analysis of a model in the background."""
