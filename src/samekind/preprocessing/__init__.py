"""Preprocessing: from a user's X to samples for training. An encoder turns images and texts into features."""
