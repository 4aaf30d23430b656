"""Compares runs by the files in their directories: no model is loaded and nothing is computed again."""
