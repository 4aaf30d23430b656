"""Static mode: training on TFRecords that google-research/bert's create_pretraining_data.py wrote.

Pairs and masks are in the records already. An index of the records' positions makes shuffling and resuming
work as with a prepared corpus.
"""

import concurrent.futures
import dataclasses
import glob
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from data_pipeline.config import DataConfig, MaskingConfig, Phase
from data_pipeline.corpus.vocabulary_file import FILES
from data_pipeline.errors import UserError
from data_pipeline.pretraining.batch_contract import RECORD_KEYS, batch_spec
from data_pipeline.tensorflow_cpu import tf

# A record consists of its length (8 bytes), a checksum of that (4), the data and its checksum (4).
_HEADER, _FOOTER = 12, 4
_LENGTH = struct.Struct("<Q")
_HELDOUT = "heldout"


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """Positions of the records in some files; the files are mapped into memory."""

    paths: tuple[Path, ...]
    files: tuple[memoryview, ...]
    file_numbers: NDArray[np.int32]
    """[N], the index into `files` of each record's file."""
    starts: NDArray[np.int64]
    """[N], the first byte of each record's data in its file."""
    lengths: NDArray[np.int64]
    """[N], bytes of each record's data."""

    def __len__(self) -> int:
        return len(self.starts)

    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.object_]:
        """The bytes of the records `numbers` [b], as an array of bytes objects."""
        starts = self.starts[numbers]
        stops = starts + self.lengths[numbers]
        where = zip(self.file_numbers[numbers].tolist(), starts.tolist(), stops.tolist(), strict=True)
        return np.array([bytes(self.files[file][start:stop]) for file, start, stop in where], object)


def find_records(corpus: str, split: str) -> list[Path]:
    """The TFRecord files of a split: of a directory those named *tfrecord*, a file itself, of a glob all that
    match; but no hidden file and no `vocab.txt`.

    Files whose names begin with "heldout" are the held-out split, all others the training split.
    """
    path = Path(corpus)
    found: Iterable[Path]
    if path.is_dir():
        found = path.glob("*tfrecord*")
    else:  # the name of a file may look like a pattern
        found = [path] if path.is_file() else map(Path, glob.glob(corpus))
    files = sorted(
        file
        for file in found
        if file.is_file() and file.name != FILES["wordpiece"] and not file.name.startswith(".")
    )
    return [file for file in files if file.name.startswith(_HELDOUT) == (split == _HELDOUT)]


def index_records(paths: Sequence[Path]) -> Records:
    """Finds the position of each record in one or more files.

    Raises UserError naming a file that is truncated or empty.
    """
    files = tuple(_map(path) for path in paths)
    spans = [_spans(path, file) for path, file in zip(paths, files, strict=True)]
    file_numbers = np.repeat(np.arange(len(spans), dtype=np.int32), [len(s) for s in spans])
    return Records(tuple(paths), files, file_numbers, *np.concatenate(spans).T)


def verify_records(paths: Sequence[Path]) -> None:
    """Compares every record with its checksums. Raises UserError naming the first altered file."""
    with concurrent.futures.ThreadPoolExecutor() as pool:  # TensorFlow releases the GIL
        for path, fault in zip(paths, pool.map(_find_fault, paths), strict=True):
            if fault:
                raise UserError(f"{path} was altered or is not a file of TFRecords: {fault}")


def _find_fault(path: Path) -> str:
    """Returns what is wrong with the records of a file; empty if nothing is."""
    with path.open("rb"):  # TensorFlow's errors of reading are none of Python's
        pass
    try:
        tf.data.TFRecordDataset(str(path)).reduce(0, lambda count, _: count + 1)
    except tf.errors.DataLossError as error:
        # The part in braces is the name of a TensorFlow node.
        return re.sub(r"^\{\{.*?\}\} ", "", error.message).partition(" [Op:")[0]
    return ""


def _map(path: Path) -> memoryview:
    """Maps a file into memory, without keeping it open."""
    if not path.stat().st_size:
        raise UserError(f"{path} is empty; it must be a file of TFRecords")
    with pa.memory_map(str(path)) as file:
        return memoryview(file.read_buffer())


def _spans(path: Path, file: memoryview) -> NDArray[np.int64]:
    """int64 [n, 2]: first byte and length of each record's data."""
    spans, offset, size = [], 0, len(file)
    while offset < size:
        length = _LENGTH.unpack_from(file, offset)[0] if offset + _HEADER <= size else size
        if offset + _HEADER + length + _FOOTER > size:
            raise UserError(
                f"{path} is truncated or is not a file of TFRecords: the record at byte {offset} ends "
                f"past the end of the file ({size} bytes)"
            )
        spans.append((offset + _HEADER, length))
        offset += _HEADER + length + _FOOTER
    return np.array(spans, np.int64).reshape(-1, 2)


def check_settings(records: Records, data: DataConfig) -> None:
    """Raises UserError naming a setting that does not apply to TFRecords and is not at its default."""
    others = ("corpus", "weights", "phases", "masking", "batch_schedule")
    parts = (("data", data, DataConfig()), ("data.masking", data.masking, MaskingConfig()))
    for prefix, ours, default in parts:
        for name, value in vars(ours).items():
            usual = getattr(default, name)
            if value != usual and name not in others:
                raise UserError(
                    f"{prefix}.{name} is {value}, but {records.paths[0]} is of TFRecords, whose pairs and "
                    f"masks are made already; leave it at {usual}, or give a corpus of `bert-jax prepare`"
                )


def check_shapes(records: Records, phase: Phase) -> None:
    """Compares the first record of each file with the phase. Raises UserError naming both if they differ."""
    wanted = {name: feature.shape[0] for name, feature in _features(phase).items()}
    for number in np.unique(records.file_numbers, return_index=True)[1]:
        path = records.paths[records.file_numbers[number]]
        found = _feature_lengths(path, records.read(np.array([number]))[0])
        for name, length in wanted.items():
            if found.get(name) != length:
                raise UserError(
                    f"{path} has {found.get(name, 0)} values of {name} in a record, but a phase wants "
                    f"{length} (max_seq_length {phase.max_seq_length}, max_predictions_per_seq "
                    f"{phase.max_predictions_per_seq}); set both as they were when the file was made, in "
                    f"all phases (--data.phases.0.max-seq-length, ...)"
                )


def _feature_lengths(path: Path, record: bytes) -> dict[str, int]:
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise UserError(f"{path} does not hold tf.train.Example records") from None
    return {name: len(f.float_list.value or f.int64_list.value) for name, f in features.items()}


def parse_records(serialized: tf.Tensor, phase: Phase) -> dict[str, tf.Tensor]:
    """Parses records, strings [b], into a batch: `RECORD_KEYS` as `batch_spec` has them."""
    serialized.set_shape([None])
    parsed = tf.io.parse_example(serialized, _features(phase))
    batch = {name: tf.cast(values, tf.int32) for name, values in parsed.items() if values.dtype == tf.int64}
    batch["masked_lm_weights"] = parsed["masked_lm_weights"]
    batch["next_sentence_labels"] = batch["next_sentence_labels"][:, 0]
    return batch


def _features(phase: Phase) -> dict[str, tf.io.FixedLenFeature]:
    """As google-research/bert, run_pretraining.py:335-351: integers are int64, and one is a list."""
    types = {"int32": tf.int64, "float32": tf.float32}
    arrays = batch_spec(phase, max_instances_per_row=1)
    return {
        name: tf.io.FixedLenFeature(arrays[name].shape or (1,), types[arrays[name].dtype])
        for name in RECORD_KEYS
    }
