"""Applying models to text: features, filled-in masks; and the flags that name a model."""
