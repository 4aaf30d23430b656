"""The step compiled for devices: by jit over a mesh or by pmap, in one process or several."""
