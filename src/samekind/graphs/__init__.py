"""Graphs: nearest neighbours, affinities, and solvers that spread labels over a graph."""
