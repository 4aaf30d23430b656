"""Runs side by side, from what they left in their folders: no model is loaded, nothing is computed anew."""
