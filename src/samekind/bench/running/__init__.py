"""Execution of runs: one run, parallel runs, presets at paper scale, and hyperparameter search."""
