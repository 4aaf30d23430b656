"""Pretraining as a task: its losses and metrics, and evaluation on held-out text."""
