"""The words by which formats, splits and runners are chosen; the standard library alone, for flags."""

from typing import Literal

Split = Literal["train", "heldout"]

FileFormat = Literal["sentences", "lines", "text", "wikiextractor", "jsonl", "tsv", "csv", "parquet"]

Format = Literal["auto", FileFormat]
"""auto: all but the first three, which show themselves by name or first line."""

EncodingErrors = Literal["strict", "replace"]
"""strict: bytes that are not UTF-8 are an error. replace: they become U+FFFD."""

RunnerName = Literal["direct", "prism", "dataflow", "flink", "spark", "portable"]
"""What runs a pipeline of Apache Beam."""
