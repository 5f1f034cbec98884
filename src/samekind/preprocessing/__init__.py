"""Preprocessing: from the X of a user to samples to train on. Images and texts become features by an encoder."""
