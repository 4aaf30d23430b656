"""The command line: the one place that joins `bert_jax` and `data_pipeline`.

The module of a command has a frozen dataclass, whose fields are the flags, and a function `run(args)`.
"""
