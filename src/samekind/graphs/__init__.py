"""Graphs: pure functions that find neighbours, weigh edges and carry labels along them."""
