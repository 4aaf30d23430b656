"""Models opened and applied: features, masks filled in."""
