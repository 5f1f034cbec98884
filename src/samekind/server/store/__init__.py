"""The label store and everything that is derived from it."""
