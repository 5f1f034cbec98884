"""Local web server for a run: its page shows, searches and labels the items, refits the model and exports the labels."""
