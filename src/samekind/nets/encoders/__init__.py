"""Encoders: frozen networks. Their features are computed once and cached on disk."""
