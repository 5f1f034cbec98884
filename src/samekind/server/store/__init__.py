"""The label store, and the files that are derived from it."""
