"""Augmentations: transforms of samples that keep their class."""
