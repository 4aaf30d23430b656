"""Compares runs by the files in their folders: no model is loaded and nothing is computed again."""
