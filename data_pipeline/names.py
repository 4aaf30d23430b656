"""The words by which formats, splits and runners are chosen; the standard library alone, for flags."""

from typing import Literal

Split = Literal["train", "heldout"]

FileFormat = Literal["sentences", "text", "wikiextractor", "jsonl"]

Format = Literal["auto", FileFormat]
"""auto: WikiExtractor or JSONL, which show themselves."""

EncodingErrors = Literal["strict", "replace"]
"""strict: bytes that are not UTF-8 are an error. replace: they become U+FFFD."""

RunnerName = Literal["direct", "prism", "dataflow", "flink", "spark", "portable"]
"""What runs a pipeline of Apache Beam."""
