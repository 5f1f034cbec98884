"""Benchmarks: grids of training runs, their execution, records, comparisons and reports."""
