"""Graphs: nearest neighbours, edge weights, and solvers that spread labels over a graph."""
