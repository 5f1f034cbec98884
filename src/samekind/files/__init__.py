"""Files: atomic writes, safe reads, and the checks of JSON and tensor files. Needs no torch."""
