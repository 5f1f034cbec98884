"""Readers of users' data: one module for each file format."""
