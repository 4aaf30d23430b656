"""Devices and processes: the mesh, what processes say to each other, signals."""
