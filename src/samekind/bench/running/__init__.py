"""Execution of runs: the runner, parallel launch, presets at paper scale, and hyperparameter search."""
