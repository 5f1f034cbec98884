"""Evaluation: how good the answers are."""
