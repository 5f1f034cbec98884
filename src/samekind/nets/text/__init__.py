"""Text encoders: strings to features. No code here knows files or tables."""
