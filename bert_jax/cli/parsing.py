"""Reads command-line flags into a dataclass, with tyro; every error becomes a one-line UserError.

tyro has no interface for what is wrong with a command line: it prints a screen and exits. So the line is
taken from the screen, whose form a test in tests/test_cli.py checks; setup.cfg bounds the version.
"""

import argparse
import contextlib
import difflib
import inspect
import io
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

import tyro

from data_pipeline.errors import UserError

T = TypeVar("T")

_LEAST_HELP_COLUMN = 8
_RULE = re.compile(r"^ *-{10,} *$", re.MULTILINE)
_INVALID_CHOICE = re.compile(r"invalid choice (.*) for argument '(\S+)'\. Expected one of \((.*)\)\.")
_IN_PLAIN_WORDS = (
    (r"^Error parsing (-\S+): ", r"\1: "),
    (r"^Error parsing \S+: ", ""),
    (r"invalid literal for int\(\) with base 10: |could not convert string to float: ", "invalid value "),
    # tyro says of each type that a flag may have why the value is none.
    (r"no type matching .*? instantiated from \[(.*?)\]\..*", r"invalid value \1"),
    (r"\. Expected 1 values\.", ""),
)
"""Patterns in tyro's messages, and what replaces them."""


def parse_flags(
    kind: type[T],
    argv: Sequence[str],
    *,
    command: str,
    default: T | None = None,
    description: str | None = None,
) -> T:
    """Reads flags into an instance of `kind`.

    Args:
      kind: a dataclass; fields become flags, their docstrings the help text.
      argv: the arguments after the command.
      command: the command itself, such as "bert-jax predict", for the help text.
      default: values of flags that are not given; None: the dataclass's own defaults.
      description: beginning of the help text; None: the dataclass's docstring.

    Raises:
      UserError: an unknown or missing flag, a value that is empty, of the wrong type or impossible.
      SystemExit: with status 0, after printing the help text for --help.
    """
    _check_not_empty(argv)
    page, screen = io.StringIO(), io.StringIO()
    start = tyro.MISSING_NONPROP if default is None else default
    try:
        with _page_width(), contextlib.redirect_stdout(page), contextlib.redirect_stderr(screen):
            value, unknown = tyro.cli(
                kind,
                args=argv,
                prog=command,
                description=_join_lines(description or inspect.getdoc(kind) or ""),
                default=start,
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if not stop.code:
            print(_wrap(page.getvalue()))
            raise
        # A required flag that is misspelt is missing, too, and the misspelt one says more.
        known = _known_flags(kind, command, default)
        wrong = [word for word in argv if word.startswith("--") and _flag(word) not in known]
        line = _name_unknown(wrong[0], kind, command, default) if wrong else _one_line(screen.getvalue())
        raise UserError(line) from None
    if unknown:
        raise UserError(_name_unknown(unknown[0], kind, command, default))
    return value


def given_flags(argv: Sequence[str]) -> frozenset[str]:
    """The names of the fields whose flags stand on a command line, such as `model.num_layers`."""
    flags = (word.removeprefix("--") for word in argv if word.startswith("--"))
    return frozenset(flag.partition("=")[0].replace("-", "_") for flag in flags)


def peek(argv: Sequence[str], *flags: str) -> argparse.Namespace:
    """The values of a few flags, None for those without one, before it is known which others there are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in flags:
        parser.add_argument(flag, nargs="?")
    return parser.parse_known_args(argv)[0]


def choices(names: Any) -> str:
    """The values of a Literal in the form of a help text, for a flag that may also be None."""
    return f"{{{','.join(get_args(names))}}}"


def take_name(argv: Sequence[str], *, what: str, usage: str, page: str) -> str:
    """Returns the name that a command line begins with, before its flags.

    Args:
      argv: the arguments after the command.
      what: the kind of name, for messages: experiment, task.
      usage: the form of the command, for messages.
      page: the text to print for --help.

    Raises:
      UserError: no name.
      SystemExit: with status 0, after printing the page for --help.
    """
    if argv and argv[0] in ("-h", "--help"):
        print(page)
        sys.exit(0)
    if not argv or argv[0].startswith("-"):
        raise UserError(f"name the {what} first: {usage}")
    return argv[0]


def list_names(summaries: Mapping[str, str]) -> str:
    """A line for each name, for the end of the page given to `take_name`."""
    width = max(map(len, summaries))
    return "\n".join(f"  {name:<{width}}  {summary}" for name, summary in summaries.items())


def _check_not_empty(argv: Sequence[str]) -> None:
    """Raises UserError if a value is empty, as that of an unset shell variable; a path would be `.`."""
    for before, word in itertools.pairwise(("", *argv)):
        if word == "" or re.fullmatch(r"--[\w.-]+=", word):
            flag = word.removesuffix("=") or (before if before.startswith("--") else "an argument")
            raise UserError(f"{flag} is empty; give it a value")


def _join_lines(text: str) -> str:
    """Joins each paragraph into one line, since tyro keeps some line breaks of a docstring and drops others.

    Indented paragraphs, such as commands, are left as they are.
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else " ".join(p.split()) for p in paragraphs)


@contextlib.contextmanager
def _page_width() -> Iterator[None]:
    """Makes tyro lay out its pages for 80 columns; from 130 on it would set the text in two columns."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _wrap(text: str) -> str:
    """tyro's help text, with long lines and the help of each flag wrapped at 80 columns.

    tyro keeps the line breaks that the help of a flag has in the source.
    """
    lines: list[tuple[str, int]] = []  # with the column in which a line goes on when it is wrapped
    above = ""
    for line in (line.rstrip() for line in text.rstrip().splitlines()):
        column = len(line) - len(line.lstrip())
        if _goes_on(above, line, column):
            lines[-1] = f"{lines[-1][0]} {line.strip()}", column
        elif line or above:  # no two blank lines
            lines.append((line, 2 if line.startswith("usage:") else 0))
        above = line
    return "\n".join(
        textwrap.fill(line, 80, break_on_hyphens=False, subsequent_indent=" " * column)
        for line, column in lines
    )


def _goes_on(above: str, line: str, column: int) -> bool:
    """Whether a line that begins at a column goes on with the help of a flag that the line above has."""
    if column < _LEAST_HELP_COLUMN or not above[column:]:
        return False
    return above[column - 2 : column] == "  " and not above[column:].startswith(" ")


def _flag(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _name_unknown(argument: str, kind: type[T], command: str, default: T | None) -> str:
    if not argument.startswith("-"):
        return f"unexpected argument {argument!r}; `{command} --help` lists what is valid"
    flag = _flag(argument)
    known = _known_flags(kind, command, default)
    near = _abbreviated(flag, known) or difflib.get_close_matches(flag, known, n=3, cutoff=0.5)
    hint = f"nearest: {', '.join(near)}; " if near else ""
    return f"unknown flag {flag}; {hint}`{command} --help` lists all"


def _abbreviated(flag: str, known: Sequence[str]) -> list[str]:
    """Up to three known flags of which a flag is the initials, such as --lr, or some of the words."""
    wanted = flag.removeprefix("--").split("-")

    words = {other: other.removeprefix("--").rpartition(".")[2].split("-") for other in known}
    with_initials = [o for o in known if "".join(word[:1] for word in words[o]) == "".join(wanted)]
    return (with_initials or [o for o in known if set(wanted) < set(words[o])])[:3]


def _known_flags(kind: type[T], command: str, default: T | None) -> list[str]:
    screen = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(screen):
        parse_flags(kind, ["--help"], command=command, default=default)
    return sorted(set(re.findall(r"(?<!-h)(?:^ *|, )(--[\w.-]+)", screen.getvalue(), re.MULTILINE)))


def _one_line(screen: str) -> str:
    """Extracts one line from tyro's message, where lines of dashes separate title, error and further help."""
    _, wrong, *more = [part.strip("\n").splitlines() for part in _RULE.split(screen)]
    message = " ".join(" ".join(wrong).split())
    if message.startswith("Missing from"):
        # Names are indented by six blanks, their help texts by ten.
        return f"missing {', '.join(line.strip() for line in wrong if re.match(r' {6}[^ ]', line))}"
    if choice := _INVALID_CHOICE.fullmatch(message):
        value, flag, listed = choice.groups()
        # Sorted, since tyro does not always list them in the same order.
        valid = sorted(set(re.findall(r"'([^']*)'", listed)) - {"None"})
        return f"{flag}: invalid value {value}; valid: {', '.join(valid)}"
    for pattern, plain in _IN_PLAIN_WORDS:
        message = re.sub(pattern, plain, message)
    expected = next((lines[1].strip() for lines in more if lines[0].strip() == "Argument helptext:"), None)
    return f"{message}; expected {expected}" if expected else message
