"""Runs on a user's own data: fit, predict, and search by similarity. The command line and the server call these modules."""
