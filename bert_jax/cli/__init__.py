"""The command line: joins `bert_jax` and `data_pipeline`, as only `bert_jax/downstream` does besides.

The module of a command has a frozen dataclass, whose fields are the flags, and a function `run(args)`.
"""
