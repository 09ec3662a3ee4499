"""Edits by symbol and by pattern, and checks."""
