"""The flags of each command and its help text, without heavy imports, so that `--help` answers at once.

A module has a frozen dataclass, whose fields are the flags; if there is more to reading them, also a function
`parse(argv)`.
"""
