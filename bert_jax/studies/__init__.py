"""Comparing the arms of an ablation."""
