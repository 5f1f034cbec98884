"""Benchmarks: grids of runs, their execution, records, comparison and reports."""
