"""Names of formats, splits and runners, as in flags. Imports nothing beyond the standard library."""

from typing import Literal

Split = Literal["train", "heldout"]

FileFormat = Literal["sentences", "lines", "text", "wikiextractor", "jsonl", "tsv", "csv", "parquet"]

Format = Literal["auto", FileFormat]
"""auto: detects the format by file name or first line; not sentences, lines or text, which look alike."""

EncodingErrors = Literal["strict", "replace"]
"""strict: bytes that are not UTF-8 are an error. replace: they become U+FFFD."""

RunnerName = Literal["direct", "prism", "dataflow", "flink", "spark", "portable"]
"""Runner of an Apache Beam pipeline."""

DuplicateHandling = Literal["keep", "exact", "near"]
"""keep: every document stays. exact: those that repeat an earlier one's text are left out, whatever the
case and the white space. near: also those that are similar to an earlier one."""
