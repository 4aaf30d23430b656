"""Lines of text from files, which are decompressed by the suffix of their names."""

import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import zstandard

from data_pipeline.errors import Unfinished, UserError
from data_pipeline.names import EncodingErrors

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
_BYTES_AT_ONCE = 16 << 10  # read before they are decompressed; all that they decompress to is held in memory
_GZIP = 16 + zlib.MAX_WBITS  # with gzip's header and checksum
_ZSTD_WINDOW = 1 << 31  # the largest, from `zstd --long=31`; reading a frame takes memory for its own window


def read_lines(path: Path, raw: IO[bytes], errors: EncodingErrors, longest: int = -1) -> Iterator[str]:
    """Yields the decoded lines of an open file, without a byte order mark.

    If `longest` is given, a line of more bytes is yielded in pieces.

    Raises:
      UserError: the file is damaged or not UTF-8, or has NUL, if `errors` is strict; names the byte. Or its
        only line ends are carriage returns.
      Unfinished: the disk or the network failed.
    """
    offset = 0
    try:
        for line in _decompressed(path, raw, longest):
            text = line.decode("utf-8", errors)
            if errors == "strict" and (place := line.find(0)) >= 0:  # UTF-16 without a mark decodes with NULs
                raise UserError(
                    f"{path} has NUL at byte {offset + place}, as UTF-16 or a damaged file has; convert it, "
                    f"or go on with --encoding-errors replace"
                )
            if not offset and longest < 0 and "\r" in text and not text.endswith("\n"):
                raise UserError(f"{path} has carriage returns for line ends; convert them to line feeds")
            yield text if offset else text.removeprefix("\ufeff")
            offset += len(line)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 at byte {offset + error.start}; "
            f"convert it, or go on with --encoding-errors replace"
        ) from None
    except (EOFError, _DamagedError) as error:
        raise UserError(f"{path} cannot be read after byte {offset}: {error}") from error
    except OSError as error:  # the disk or the network, not the file
        raise Unfinished(
            f"{path} cannot be read after byte {offset}: {error}; run the same command again to resume"
        ) from error


def decode(text: bytes, errors: EncodingErrors, place: str) -> str:
    """Decodes UTF-8. Raises UserError, whose message names `place`, if `errors` is strict and it is not."""
    try:
        return text.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise UserError(f"{place} is not UTF-8; go on with --encoding-errors replace") from None


def _decompressed(path: Path, raw: IO[bytes], longest: int) -> Iterable[bytes]:
    # Imported here because a Python that was built without these libraries lacks the modules.
    match path.suffix.lower():
        case ".gz":
            frames = _Frames(raw, lambda: zlib.decompressobj(_GZIP), zlib.error, padding=b"\0")
        case ".bz2":
            import bz2

            frames = _Frames(raw, bz2.BZ2Decompressor, OSError)
        case ".xz":
            import lzma

            frames = _Frames(raw, lzma.LZMADecompressor, lzma.LZMAError, padding=b"\0")
        case ".zst":
            zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
            frames = _Frames(raw, zstd.decompressobj, zstandard.ZstdError)
        case _:
            return _lines(raw, longest)
    return _lines(io.BufferedReader(frames), longest)


def _lines(file: Any, longest: int) -> Iterable[bytes]:
    return file if longest < 0 else iter(lambda: file.readline(longest), b"")


class _DamagedError(Exception):
    """A compressed file's content is damaged or not in the format of its suffix."""


class _Frames(io.RawIOBase):
    """The decompressed frames of a file, one after the other.

    The libraries' own readers take a damaged frame after the first, or padding, for the end of the file.
    """

    def __init__(
        self, raw: IO[bytes], begin: Callable[[], Any], damaged: type[Exception], padding: bytes = b""
    ) -> None:
        """
        Args:
          raw: the compressed file.
          begin: makes the decompressor of a frame.
          damaged: what that raises.
          padding: a byte that may stand between frames, any number of times.
        """
        self._raw, self._begin, self._damaged, self._padding = raw, begin, damaged, padding
        self._frame = begin()
        self._compressed = b""
        self._decompressed = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises EOFError if the file ends inside a frame."""
        while not self._decompressed:
            compressed = self._compressed or self._raw.read(_BYTES_AT_ONCE)
            if not compressed and self._frame.eof:
                return 0
            if not compressed:
                raise EOFError("the file ends inside a compressed frame")
            if self._frame.eof:
                compressed, self._compressed = compressed.lstrip(self._padding), b""
                if not compressed:
                    continue
                self._frame = self._begin()
            try:
                self._decompressed = memoryview(self._frame.decompress(compressed))
            except self._damaged as error:
                raise _DamagedError(error) from error
            self._compressed = self._frame.unused_data
        size = min(len(buffer), len(self._decompressed))
        buffer[:size], self._decompressed = self._decompressed[:size], self._decompressed[size:]
        return size
