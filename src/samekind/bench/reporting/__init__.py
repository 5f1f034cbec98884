"""Reports about recorded runs: comparisons, tables, figures and HTML."""
