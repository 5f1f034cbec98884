"""The page: a local server on a run, where a person looks, asks, labels, refits and exports."""
