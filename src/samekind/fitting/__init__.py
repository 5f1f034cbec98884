"""Fitting: from X, labels and options to a trained model, and to what the labels say about its quality."""
