"""Data: all that turns files and arrays into training batches. Nothing here depends on a training method."""
