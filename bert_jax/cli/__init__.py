"""The command line: the one place that joins `bert_jax` and `data_pipeline`.

A module here is one command: a frozen dataclass whose fields are its flags, and `run(args)`.
"""
