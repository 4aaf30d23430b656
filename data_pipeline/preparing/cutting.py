"""Lines and documents of bounded length, so that memory does not grow with the input."""

from collections.abc import Iterable, Iterator

# In characters; a document ends with the line that reaches this length. A longer document (a whole library
# in one file) is cut between lines, and a single longer line at a blank. Training never looks further than a
# few hundred tokens, so this only affects the counts of documents.
LONGEST_DOCUMENT = 4 << 20


def cut_line(line: str, longest: int) -> Iterator[str]:
    """Cuts a line into pieces of at most `longest` characters, at blanks where possible."""
    start = 0
    while len(line) - start > longest:
        blank = line.rfind(" ", start + 1, start + longest + 1)
        stop = blank if blank > 0 else start + longest
        yield line[start:stop]
        start = stop + line.startswith(" ", stop)
    if start < len(line):
        yield line[start:]


def cut_document(lines: Iterable[str]) -> Iterator[list[str]]:
    """Same as `gather_lines`, but also cuts lines that are longer than the longest document."""
    return gather_lines(piece for line in lines for piece in cut_line(line, LONGEST_DOCUMENT))


def gather_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Groups lines into documents of bounded length: a single one unless they exceed LONGEST_DOCUMENT."""
    group: list[str] = []
    size = 0
    for line in lines:
        group.append(line)
        size += len(line)
        if size >= LONGEST_DOCUMENT:
            yield group
            group, size = [], 0
    if group:
        yield group
