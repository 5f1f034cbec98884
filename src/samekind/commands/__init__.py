"""Commands of the command line that are not in cli.py, which combines all of them."""
