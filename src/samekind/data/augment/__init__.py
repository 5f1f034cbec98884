"""Augmentations: random changes of samples that keep their class."""
