"""Evaluation: metrics of class predictions and of similarities."""
