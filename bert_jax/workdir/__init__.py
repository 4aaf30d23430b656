"""The work directory of a run: its record of settings and versions, its lock, branching from another run."""
