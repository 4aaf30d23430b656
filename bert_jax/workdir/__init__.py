"""The work directory of a run: its record of settings and versions, and its lock."""
