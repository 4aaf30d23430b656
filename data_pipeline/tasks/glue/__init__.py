"""GLUE: its tasks, their files, and the zip for its server."""
