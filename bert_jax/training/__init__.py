"""The training step, compiled by jit over a mesh or by pmap, and the loop around it."""
