"""Applying models to text: features, filled-in masks, probabilities of tokens and sentences."""
