"""The libraries whose versions decide the bytes of a corpus."""

import importlib.metadata

_LIBRARIES = ("bert-jax", "tokenizers", "sentencepiece", "sentencex", "pyarrow", "datasketch")


def library_versions() -> dict[str, str]:
    """The version of each of these libraries, as installed on the machine that calls this."""
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}
