"""Readers of user data: one module for each format."""
