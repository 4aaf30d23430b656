"""Documentation: prose of docstrings is kept; code, tables and lists are not."""

import argparse
import textwrap
from pathlib import Path

import pytest

from data_pipeline.preparing import documentation
from data_pipeline.preparing.documentation import (
    documents_of_packages,
    find_modules,
    module_sentences,
    prose_sentences,
)

MODULE = '''
"""Tools to measure the height of the tide.

This module talks to the ``gauge`` in the :class:`~harbour.Harbour` and keeps in
`tf.Tensor` *all* of its readings.
It needs a `battery <https://example.org/battery>`_ that is not older than a year.

Parameters
----------
height : float
    The height that you want to have for this.

    >>> measure(3)
    The value of this is three and a half.

Example of what you can do with it::

    The first line of this is some code.

.. note:: This is a directive that has some text.

- The first item of the list is not prose.

======  ======
The first column of this is wide.
======  ======

```
The code in this fence is never read by anyone.
```
"""


class Gauge:
    """Return the last reading that was taken by the gauge."""

    def read(self, unit):
        """Convert the reading to the unit and give it back.

        Args:
            unit: The name of the unit that is to be used.
        """
        def inner():
            """This is hidden inside of a function and is not read."""


if True:
    def later():
        """A function that is defined under a condition is read too."""
'''


def test_keeps_prose_and_drops_the_rest(tmp_path):
    (tmp_path / "tide.py").write_text(MODULE)
    assert module_sentences(tmp_path / "tide.py") == [
        "Tools to measure the height of the tide.",
        "This module talks to the gauge in the Harbour and keeps in tf.Tensor all of its readings.",
        "It needs a battery that is not older than a year.",
        "Return the last reading that was taken by the gauge.",
        "Convert the reading to the unit and give it back.",
        "A function that is defined under a condition is read too.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Too short a line.",
        "this begins in the middle of a sentence.",
        "There is no full stop at the end of this",
        "The value of x = 3 is set in the call.",
        "See https://example.org/a/b for the rest of it.",
        "Dieser Satz steht nicht auf Englisch geschrieben da.",
        "Foo_bar baz_qux spam_eggs a the one_two three_four.",
        "The name of a_long_name_ is not to be used here.",
        "Call run() with what is to be done and wait(seconds) for the end.",
        "The file is in one/or/another of these.",
    ],
)
def test_drops_what_does_not_read_as_an_english_sentence(text):
    assert prose_sentences(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Call run() to get the value that is in use.",
        "The value (or none) is of the type that some_name has.",
        "The input and/or the output may be left out.",
    ],
)
def test_keeps_sentences_with_a_little_code(text):
    assert prose_sentences(text) == [text]


def test_a_module_that_cannot_be_parsed_gives_nothing(tmp_path):
    (tmp_path / "old.py").write_text('"""This is the text of a module that is old."""\nprint "x"\n')
    assert module_sentences(tmp_path / "old.py") == []
    (tmp_path / "null.py").write_bytes(b'"""The rest of this is binary."""\n\0')
    assert module_sentences(tmp_path / "null.py") == []


def test_half_a_character_costs_its_docstring_alone(tmp_path):
    half = "def half():\n    'This has \\ud800 in it and is not read.'\n"
    (tmp_path / "half.py").write_text(f"{MODULE}\n\n{half}")
    assert len(module_sentences(tmp_path / "half.py")) == 6


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """A small installation of two packages; one sentence is in every module."""
    for package in ("alpha", "beta"):
        for number in range(3):
            path = tmp_path / package / f"module_{number}.py"
            path.parent.mkdir(exist_ok=True)
            lines = [
                f"The {noun} of the {package} is number {number}." for noun in ("cat", "dog", "cow", "hen")
            ]
            text = textwrap.fill(" ".join(["This is in all of them.", *lines]), 70)
            path.write_text(f'"""{text}"""\n\nraise RuntimeError("imported")\n' + "# padding\n" * 40)
    (tmp_path / "alpha" / "tests").mkdir()
    (tmp_path / "alpha" / "tests" / "t.py").write_text((tmp_path / "alpha" / "module_0.py").read_text())
    paths = dict.fromkeys(("stdlib", "platstdlib", "purelib", "platlib"), str(tmp_path))
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: paths)
    documents_of_packages.cache_clear()
    yield tmp_path
    documents_of_packages.cache_clear()


def test_packages_take_turns_and_tests_are_left_out(installation):
    found = [path.relative_to(installation).parts for _, path in find_modules()]
    assert [parts[0] for parts in found] == ["alpha", "beta"] * 3
    assert len(set(found)) == 6
    assert [name for name, _ in find_modules()] == ["/".join(parts) for parts in found]


def test_documents_are_known_by_their_packages(installation):
    packages = [package for package, _ in documents_of_packages()]
    assert packages == ["alpha", "beta"] * 3


def test_a_link_that_leads_nowhere_is_left_out(installation):
    (installation / "alpha" / "gone.py").symlink_to(installation / "nowhere.py")
    assert len(find_modules()) == 6


def test_another_installation_is_noticed(installation):
    before = documentation.fingerprint()
    assert documentation.fingerprint() == before
    with (installation / "beta" / "module_2.py").open("a") as file:
        file.write("# new\n")
    assert documentation.fingerprint() != before


def test_no_sentence_comes_twice_and_nothing_is_imported(installation):
    sentences = [sentence for _, document in documents_of_packages() for sentence in document]
    assert sentences.count("This is in all of them.") == 1
    assert len(set(sentences)) == len(sentences) == 1 + 6 * 4


def test_size_is_capped(installation):
    documents = documents_of_packages(limit=300)
    sizes = [sum(len(sentence) + 1 for sentence in document) for _, document in documents]
    assert sum(sizes[:-1]) < 300 <= sum(sizes)


def test_the_standard_library_holds_prose():
    sentences = module_sentences(Path(argparse.__file__))
    assert len(sentences) >= 10
