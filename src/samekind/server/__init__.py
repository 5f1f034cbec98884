"""Local web server for a run: a page on which a user sees, searches and labels the items, refits the model and exports
labels.
"""
