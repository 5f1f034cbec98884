"""Encoders: frozen networks whose features are computed once and cached on disk."""
