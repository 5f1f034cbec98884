"""Reports of recorded runs: comparison, tables, figures and HTML."""
