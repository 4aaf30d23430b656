"""Lines of files: compressed, damaged, in another encoding, on a disk that fails."""

import bz2
import errno
import gzip
import io
import lzma
from pathlib import Path

import pytest
import zstandard

from data_pipeline.errors import Unfinished, UserError
from data_pipeline.preparing.text_lines import read_lines
from tests.data_pipeline.preparing.read_inputs import WIKI, WIKI_DOCUMENTS, read


def test_reads_compressed_files(tmp_path):
    (tmp_path / "b.gz").write_bytes(gzip.compress(WIKI.encode()))
    half = len(WIKI) // 2
    frames = [zstandard.compress(part.encode()) for part in (WIKI[:half], WIKI[half:])]
    (tmp_path / "c.zst").write_bytes(b"".join(frames))
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n'))
    (tmp_path / "e.bz2").write_bytes(bz2.compress(WIKI.encode()))
    (tmp_path / "f.xz").write_bytes(lzma.compress(WIKI.encode()))
    assert read(tmp_path) == [*WIKI_DOCUMENTS, *WIKI_DOCUMENTS, "x", *WIKI_DOCUMENTS, *WIKI_DOCUMENTS]


@pytest.mark.parametrize("window", [28, 31])
def test_zstd_frames_with_a_long_window_are_read(tmp_path, window):
    """As `zstd --long` writes them."""
    parameters = zstandard.ZstdCompressionParameters(window_log=window, hash_log=6, chain_log=6)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = compressor.compress(b"One.\n") + compressor.flush()  # of a length that it does not know yet
    (tmp_path / "a.zst").write_bytes(frame * 2)
    assert read(tmp_path, format="lines") == ["One.", "One."]


def test_bytes_that_are_not_utf8_are_located(tmp_path):
    (tmp_path / "a.txt").write_bytes("Ü.\nok\n".encode() + b"na\xefve\n")
    with pytest.raises(UserError, match=r"a\.txt is not UTF-8 at byte 9; .*--encoding-errors replace"):
        read(tmp_path / "a.txt", format="sentences")
    replaced = read(tmp_path / "a.txt", format="sentences", encoding_errors="replace")
    assert replaced == [["Ü.", "ok", "na\ufffdve"]]


def test_utf16_without_a_mark_is_no_text_of_nuls(tmp_path):
    (tmp_path / "a.txt").write_bytes("One.\nTwo.\n".encode("utf-16-le"))
    with pytest.raises(UserError, match=r"a\.txt has NUL at byte 1, as UTF-16 .*--encoding-errors replace"):
        read(tmp_path / "a.txt", format="sentences")
    assert read(tmp_path / "a.txt", format="sentences", encoding_errors="replace")


COMPRESSIONS = {"gz": gzip.compress, "zst": zstandard.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damaged_compressed_files_are_named(tmp_path, suffix):
    whole = COMPRESSIONS[suffix](WIKI.encode() * 100)
    (tmp_path / f"a.{suffix}").write_bytes(b"garbage" + whole)
    with pytest.raises(UserError, match=rf"a\.{suffix} cannot be read"):
        read(tmp_path, format="wikiextractor")


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damage_after_the_first_of_several_frames_is_found(tmp_path, suffix):
    """Of many frames are, for example, the multistream dumps of Wikipedia."""
    frame = COMPRESSIONS[suffix](WIKI.encode())
    damaged = bytes([frame[0] ^ 1]) + frame[1:]
    (tmp_path / f"a.{suffix}").write_bytes(frame + damaged + frame)
    with pytest.raises(UserError, match=rf"a\.{suffix} cannot be read after byte {len(WIKI.encode())}"):
        read(tmp_path, format="wikiextractor")


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_padding_between_and_after_streams_is_skipped(suffix, tmp_path):
    stream = COMPRESSIONS[suffix](WIKI.encode())
    (tmp_path / f"a.{suffix}").write_bytes(stream + bytes(8) + stream + bytes(20_000))
    assert read(tmp_path) == [*WIKI_DOCUMENTS, *WIKI_DOCUMENTS]


def test_a_disk_that_cannot_be_read_is_no_fault_of_the_file():
    class Disk(io.BytesIO):
        def __next__(self) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(Unfinished, match=r"a\.txt cannot be read after byte 0: .*; run the same"):
        next(read_lines(Path("a.txt"), Disk(), "strict"))


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_truncated_compressed_files_are_named(suffix, tmp_path):
    whole = COMPRESSIONS[suffix](WIKI.encode())
    for content in (whole + whole[:-20], b""):
        (tmp_path / f"a.{suffix}").write_bytes(content)
        with pytest.raises(UserError, match=rf"a\.{suffix} cannot be read after byte \d+: .*end"):
            read(tmp_path, format="wikiextractor")
