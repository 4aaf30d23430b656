"""Lines and documents of bounded length, so that nothing later grows with the input."""

from collections.abc import Iterable, Iterator

# Characters, to the end of the line that reaches them. A longer document (a whole library in one file) is
# cut between lines, a line that is longer by itself at a blank; training never looks further than a few
# hundred tokens, so only the bookkeeping notices.
LONGEST_DOCUMENT = 4 << 20


def cut_line(line: str, longest: int) -> Iterator[str]:
    """The line in pieces of at most `longest` characters, which end at blanks where there are any."""
    start = 0
    while len(line) - start > longest:
        blank = line.rfind(" ", start + 1, start + longest + 1)
        stop = blank if blank > 0 else start + longest
        yield line[start:stop]
        start = stop + line.startswith(" ", stop)
    if start < len(line):
        yield line[start:]


def cut_document(lines: Iterable[str]) -> Iterator[list[str]]:
    """`gather_lines`, of lines any of which may be longer than the longest document."""
    return gather_lines(piece for line in lines for piece in cut_line(line, LONGEST_DOCUMENT))


def gather_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines up to the longest document; more than one part only if they are longer than it."""
    part: list[str] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= LONGEST_DOCUMENT:
            yield part
            part, size = [], 0
    if part:
        yield part
