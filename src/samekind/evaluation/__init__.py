"""Evaluation: metrics of predictions and similarities."""
