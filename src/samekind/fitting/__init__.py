"""Fitting: from X, labels and options to a trained model, and what the labels tell about its quality."""
