"""Compiles the training step with the real TPU compiler, on a machine that has no TPU."""
