"""The training step and the loop around it: optimizer, checkpoints, metrics, progress."""
