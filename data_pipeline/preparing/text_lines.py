"""Lines of text from files, which are decompressed by the suffix of their names."""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import zstandard

from data_pipeline.errors import Unfinished, UserError
from data_pipeline.names import EncodingErrors

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
_ZSTD_BYTES = 16 << 10  # compressed bytes read at once; all that they decompress to is held in memory
_ZSTD_WINDOW = 1 << 31  # the largest, from `zstd --long=31`; reading a frame takes memory for its own window


def read_lines(path: Path, raw: IO[bytes], errors: EncodingErrors, longest: int = -1) -> Iterator[str]:
    """Yields the decoded lines of an open file, without a byte order mark.

    If `longest` is given, a line of more bytes is yielded in pieces.

    Raises:
      UserError: the file is damaged or not UTF-8; names the byte.
      Unfinished: the disk or the network failed.
    """
    offset = 0
    try:
        for line in _decompressed(path, raw, longest):
            text = line.decode("utf-8", errors)
            yield text if offset else text.removeprefix("\ufeff")
            offset += len(line)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 at byte {offset + error.start}; "
            f"convert it, or go on with --encoding-errors replace"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error, zstandard.ZstdError, _DamagedError) as error:
        raise UserError(f"{path} cannot be read after byte {offset}: {error}") from error
    except OSError as error:  # the disk or the network, not the file
        raise Unfinished(
            f"{path} cannot be read after byte {offset}: {error}; run the same command again to resume"
        ) from error


def _decompressed(path: Path, raw: IO[bytes], longest: int) -> Iterable[bytes]:
    if path.suffix == ".gz":
        return _lines(gzip.GzipFile(fileobj=raw), longest)
    if path.suffix == ".zst":
        return _lines(io.BufferedReader(_ZstdFrames(raw)), longest)
    return _bz2_or_xz(path.suffix, raw, longest) if path.suffix in (".bz2", ".xz") else _lines(raw, longest)


def _lines(file: Any, longest: int) -> Iterable[bytes]:
    return file if longest < 0 else iter(lambda: file.readline(longest), b"")


class _DamagedError(Exception):
    """A compressed file's content is damaged or not in the format of its suffix."""


def _bz2_or_xz(suffix: str, raw: IO[bytes], longest: int) -> Iterator[bytes]:
    # Imported here because a Python that was built without these libraries lacks the modules.
    import bz2
    import lzma

    open_file = bz2.BZ2File if suffix == ".bz2" else lzma.LZMAFile
    try:
        # Without the buffer, reading lines takes twice the time.
        yield from _lines(io.BufferedReader(open_file(raw)), longest)
    except lzma.LZMAError as error:
        raise _DamagedError(error) from error
    except OSError as error:
        if error.errno is not None:  # an error of the disk; those of bz2 itself have no errno
            raise
        raise _DamagedError(error) from error


class _ZstdFrames(io.RawIOBase):
    """The decompressed frames of a file. Unlike zstandard's own reader, it notices if the last is cut off."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame = self._decompressor.decompressobj()
        self._decompressed = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises EOFError if the file ends inside a frame."""
        while not self._decompressed:
            compressed = self._frame.unused_data or self._raw.read(_ZSTD_BYTES)
            if not compressed and self._frame.eof:
                return 0
            if not compressed:
                raise EOFError("the file ends inside a compressed frame")
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            self._decompressed = memoryview(self._frame.decompress(compressed))
        size = min(len(buffer), len(self._decompressed))
        buffer[:size], self._decompressed = self._decompressed[:size], self._decompressed[size:]
        return size
