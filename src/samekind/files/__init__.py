"""Files: atomic writes, safe reads, and checks of JSON and tensor files. Works without torch."""
