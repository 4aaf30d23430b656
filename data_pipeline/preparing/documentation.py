"""English prose that every machine already has: the docstrings of the installed Python packages.

Sources are parsed, never imported. Each module is a document. Only sentences of unindented paragraphs are
kept, since code, parameter lists and most tables are indented below a heading.
"""

import ast
import collections
import functools
import hashlib
import inspect
import itertools
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import joblib
import sentencex

from data_pipeline.errors import UserError
from data_pipeline.preparing.worker_pool import in_order, worker_pool

LIMIT_BYTES = 8_000_000
"""Most bytes of prose to gather: enough for a small model, and done in seconds."""

_FEWEST_SENTENCES = 4  # in a document
_FILES_AT_ONCE = 40
_SMALLEST_SOURCE = 400  # bytes
_LARGEST_SOURCE = 1_000_000  # bytes; larger files are generated code

_SMALLEST_STRINGS = 0.06  # fraction of a source in long strings, below which it is not parsed
_LONG_STRING = re.compile(rb"\"{3}.*?\"{3}|'{3}.*?'{3}", re.DOTALL)

_SKIPPED_DIRECTORIES = {
    "__pycache__",
    "_vendor",
    "examples",
    "extern",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "testing",
    "tests",
    "vendor",
    "vendored",
}

# Every pattern here takes linear time at most, because docstrings are untrusted input and some hold data.
_BLANKS = (re.compile(r"\s+"), " ")
_MARKUP = (
    _BLANKS,
    (re.compile(r":[\w:+.-]{1,40}:`~(?:[\w.]+\.)?(\w+)[()]*`"), r"\1"),  # :role:`~long.name`
    (re.compile(r":[\w:+.-]{1,40}:`\.?([^`<]+?)(?: ?<[^`>]*>)?`"), r"\1"),  # :role:`text <target>`
    (re.compile(r"`([^`<]+?) ?<[^`>]*>`__?"), r"\1"),  # `text <link>`_
    (re.compile(r"!?\[([^\]\[]+)\]\([^()\s]*\)"), r"\1"),  # [text](link)
    (re.compile(r"\[[\w-]+\]_"), ""),  # [1]_
    (re.compile(r"`+([^`]*)`+_{0,2}"), r"\1"),  # `code`, ``code``
    (re.compile(r"(?<!\w)(\*{1,3})(?=\S)([^*]+)(?<=\S)\1(?!\w)"), r"\2"),  # *emphasis*
    _BLANKS,
    (re.compile(r" ([,.;:!?])(?= |$)"), r"\1"),
)

# A block with a line that matches is a heading, a table, a list, a directive, a doctest or a field list.
_NOT_PROSE = re.compile(
    r"^(?:[-=~^\"'#*+_.:]{3,}\s*$|[-=]{2,}\s|[|+]|>>>|\.\.(?:\s|$)|[-*+•]\s|\(?\d+[.)]\s|\(?[a-z]\)\s"
    r"|:[\w ]+:|@\w+|#|%|\$|__?\w+__?\s*$|```|~~~|[\w.,*\s]+ : |\w+\(.*\)\s*(?:->.*)?:?$)"
)
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # half of a surrogate pair: not text, so it cannot be split
_FENCE = re.compile(r"^\s*(?:```|~~~)")

_SENTENCE = re.compile(r"""["'(]?[A-Z][^=<>{}|\\@#~^$*\[\]`]*[.!?]["')]*""")
_CODE_LIKE = re.compile(
    r"""
      :// | -> | \.\.\. | :: | --
    | \b(?:TODO|FIXME)\b
    | \w/\w+/\w  # a path
    | \b(?:\w+?_){3}  # a_name_of_words
    | \A(?>.*?\w\().+\)  # a call with arguments: from the first parenthesis of a call to the last of all
    """,
    re.VERBOSE,
)
_COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a all an and any are as at be been but by can cannot do does each for from has have if in into
        is it its may more must no not of on one only or other should such than that the their them then
        there these they this those to use used was we when where which while will with would you your
        """,
    )
)
_INSIDE_NAME = re.compile(r"(?<=\w)\.(?=\w)")
_JOINT = "\ue000"  # a private-use character, which never ends a sentence
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")


@functools.lru_cache(maxsize=1)
def documents_of_packages(limit: int = LIMIT_BYTES) -> list[tuple[str, list[str]]]:
    """Returns documents, each a package and a list of sentences; no sentence is repeated.

    They have about `limit` bytes in all. The same installation always gives the same documents, in an order
    that mixes its packages. Raises UserError if it holds no docstrings, Unfinished if a worker process was
    killed.
    """
    seen: set[bytes] = set()
    documents: list[tuple[str, list[str]]] = []
    size = 0
    modules = find_modules()
    read = _read_modules([path for _, path in modules], joblib.cpu_count())
    for (name, _), sentences in zip(modules, read, strict=False):
        fresh = [sentence for sentence in sentences if _is_new(sentence, seen)]
        if len(fresh) < _FEWEST_SENTENCES:
            continue
        documents.append((Path(name).parts[0].removesuffix(".py"), fresh))
        size += sum(len(sentence.encode()) + 1 for sentence in fresh)
        if size >= limit:
            break
    if not documents:
        raise UserError("no documentation is installed: the packages' sources hold no docstrings")
    return documents


def fingerprint() -> str:
    """A hash of the installed sources' names and sizes, the same wherever they are installed."""
    sizes = [f"{name}\0{_size(path)}" for name, path in find_modules()]
    return hashlib.sha256("\0".join(sizes).encode("utf-8", "surrogatepass")).hexdigest()


def find_modules() -> list[tuple[str, Path]]:
    """Source files of the standard library and the installed packages, one of each package in turn.

    Each has its path, and before it that inside the directory in which packages are installed.
    """
    paths = sysconfig.get_paths()
    roots = dict.fromkeys(Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    packages = collections.defaultdict(list)
    for root in roots:
        for path in _sources(root):
            relative = path.relative_to(root)
            packages[relative.parts[0]].append((_digest(str(relative)), path, str(relative)))
    turns = itertools.zip_longest(*(sorted(packages[name]) for name in sorted(packages)))
    return [(name, path) for turn in turns for _, path, name in filter(None, turn)]


def module_sentences(path: Path) -> list[str]:
    """The prose sentences of a module's docstrings, in order; none if it cannot be parsed."""
    try:
        source = path.read_bytes()
        if not _is_promising(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the source's own defects, such as stray backslashes
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        sentence
        for docstring in _docstrings(tree)
        for block in _blocks(docstring)
        for sentence in prose_sentences(block)
    ]


def prose_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph that read as English, without markup; the others are dropped."""
    for pattern, replacement in _MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    # A full stop without a blank after it is inside a name, as in tf.Tensor.
    joined = _INSIDE_NAME.sub(_JOINT, paragraph)
    sentences = (segment.strip().replace(_JOINT, ".") for segment in sentencex.segment("en", joined))
    return [sentence for sentence in sentences if _is_english(sentence)]


def _read_modules(paths: list[Path], workers: int) -> Iterator[list[str]]:
    """Yields the sentences of each module, in order; workers read a few batches ahead of the caller."""
    with worker_pool(workers) as pool:
        batches = (paths[start : start + _FILES_AT_ONCE] for start in range(0, len(paths), _FILES_AT_ONCE))
        futures = (pool.submit(_read_batch, batch) for batch in batches)
        for batch in in_order(futures, ahead=2 * workers):
            yield from batch


def _read_batch(paths: Iterable[Path]) -> list[list[str]]:
    return [module_sentences(path) for path in paths]


def _is_promising(source: bytes) -> bool:
    """Whether a source has enough prose to be worth parsing, which takes nearly all of the time.

    The third of the code that is left out holds 4% of the prose.
    """
    strings = sum(len(match[0]) for match in _LONG_STRING.finditer(source))
    return strings >= _SMALLEST_STRINGS * len(source)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module, its classes and functions, in the order of the source."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring and not _HALF_CHARACTER.search(docstring):
                yield docstring
        if isinstance(node, ast.Module | ast.ClassDef | ast.If | ast.Try):
            stack.extend(reversed(node.body))


def _blocks(docstring: str) -> Iterator[str]:
    """The unindented paragraphs of a docstring, each as one line."""
    block: list[str] = []
    fenced = False
    for line in [*inspect.cleandoc(docstring).splitlines(), ""]:
        fenced ^= bool(_FENCE.match(line))
        if line.strip():
            block.append(line)
            continue
        if block and not fenced and _is_prose(block):
            yield " ".join(block)
        block = []


def _is_prose(block: list[str]) -> bool:
    return not any(line[0].isspace() or _NOT_PROSE.match(line) for line in block)


def _is_english(sentence: str) -> bool:
    if not _SENTENCE.fullmatch(sentence) or _CODE_LIKE.search(sentence):
        return False
    words = sentence.split()
    if not 5 <= len(words) <= 80:
        return False
    plain = sum(bool(_WORD.fullmatch(word.strip(".,;:!?()\"'"))) for word in words)
    common = sum(word.lower() in _COMMON_WORDS for word in words)
    return plain >= 0.8 * len(words) and common >= max(1, len(words) // 8)


def _is_new(sentence: str, seen: set[bytes]) -> bool:
    key = _digest(sentence.casefold())
    new = key not in seen
    seen.add(key)
    return new


def _sources(root: Path) -> Iterator[Path]:
    for directory, directories, files in os.walk(root):
        directories[:] = [name for name in directories if name not in _SKIPPED_DIRECTORIES]
        paths = (Path(directory, name) for name in files if name.endswith(".py"))
        yield from (path for path in paths if _SMALLEST_SOURCE <= _size(path) <= _LARGEST_SOURCE)


def _size(path: Path) -> int:
    """Size in bytes; 0 if the file cannot be read, such as a broken link."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
