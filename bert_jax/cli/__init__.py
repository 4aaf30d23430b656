"""The command line. `flags/NAME.py` has the flags of a command, and `NAME.py` a function `run(args)`."""
