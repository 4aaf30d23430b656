"""Column files: what is read, how schemes become one, and what is said of wrong lines."""

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities

from data_pipeline.errors import UserError
from data_pipeline.tasks.tagging.columns import (
    Columns,
    Sentence,
    convert_tags,
    read_columns,
    tags_in_scheme,
    write_columns,
)
from tests.data_pipeline.tasks.files import write

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
German JJ B-NP I-MISC
Peter NNP I-NP I-PER
Smith NNP I-NP I-PER
Paul NNP I-NP B-PER


\u00a0 NN O O
-DOCSTART- -X- -X- O

Brussels NNP B-NP I-LOC
"""
CONLL_U = """# newdoc id = a
# sent_id = a-1
# text = In Rom
1\tIn\tO\t-
2\tRom\tB-LOC\t-

# text = # 5
1\t#\tO\t-
2\t5\tO\t-
# newdoc
# sent_id = b-1
1\tRom\tB-LOC\t-
"""
SCHEMES = {
    "iob1": ["I-X", "I-X", "B-X", "O", "I-X", "I-Y", "O", "I-Y", "B-Y", "B-Y"],
    "iob2": ["B-X", "I-X", "B-X", "O", "B-X", "B-Y", "O", "B-Y", "B-Y", "B-Y"],
    "iobes": ["B-X", "E-X", "S-X", "O", "S-X", "S-Y", "O", "S-Y", "S-Y", "S-Y"],
}
IOB1 = Columns(scheme="iob1")


def places(count: int) -> list[str]:
    return [f"f:{number + 1}" for number in range(count)]


def test_reads_conll_2003_with_its_documents(tmp_path):
    sentences = read_columns(write(tmp_path / "f", CONLL_2003), IOB1)
    tags = ("B-ORG", "O", "B-MISC", "B-PER", "I-PER", "B-PER")
    assert sentences == (
        Sentence(("EU", "rejects", "German", "Peter", "Smith", "Paul"), tags, document=1),
        Sentence(("\u00a0",), ("O",), document=1),
        Sentence(("Brussels",), ("B-LOC",), document=2),
    )


def test_comments_of_multiconer_are_left_out(tmp_path):
    text = "# id 5239d808-f300\tdomain=en\nRom _ _ B-LOC\n# _ _ O\n"
    sentences = read_columns(write(tmp_path / "f", text), Columns())
    assert sentences == (Sentence(("Rom", "#"), ("B-LOC", "O"), document=None),)


def test_comments_of_conll_u_are_left_alone(tmp_path):
    columns, source = Columns(word=1, tag=2), write(tmp_path / "f", CONLL_U)
    sentences = read_columns(source, columns)
    assert sentences == (
        Sentence(("In", "Rom"), ("O", "B-LOC"), document=1),
        Sentence(("#", "5"), ("O", "O"), document=1),
        Sentence(("Rom",), ("B-LOC",), document=2),
    )
    assert sentences[1].place(0) == f"{source}:8"
    write_columns(source, tmp_path / "out", columns, [(sentence, sentence.tags) for sentence in sentences])
    lines = zip(CONLL_U.splitlines(), (tmp_path / "out").read_text().splitlines(), strict=True)
    assert [after.removeprefix(before) for before, after in lines if before != after] == [
        "\tO",
        "\tB-LOC",
        "\tO",
        "\tO",
        "\tB-LOC",
    ]


UNIVERSAL = "# a remark\n1\tIl\tPRON\n2-3\tdu\t_\n2\tde\tADP\n3\tle\tDET\n3.1\tva\tVERB\n4\tsol\tNOUN\n"


def test_words_of_conll_u_are_the_syntactic_ones(tmp_path):
    columns, source = Columns(word=1, tag=2, scheme="none"), write(tmp_path / "f.conllu", UNIVERSAL)
    (sentence,) = read_columns(source, columns)
    assert sentence.words == ("Il", "de", "le", "sol")
    assert sentence.tags == ("PRON", "ADP", "DET", "NOUN")
    assert [sentence.place(word).rpartition(":")[2] for word in range(4)] == ["2", "4", "5", "7"]
    write_columns(source, tmp_path / "out", columns, [(sentence, "abcd")])
    written = (tmp_path / "out").read_text().splitlines()
    assert [line.rpartition("\t")[2] for line in written] == ["# a remark", "a", "_", "b", "c", "VERB", "d"]


def test_columns_have_different_names(tmp_path):
    with pytest.raises(UserError, match="two columns named 'word'"):
        read_columns(write(tmp_path / "f", "word\tword\na\tO\n"), Columns(word="word"))
    source, columns = (
        write(tmp_path / "f", "word\tpredicted\na\tO\n"),
        Columns(word="word", tag=None, scheme="none"),
    )
    with pytest.raises(UserError, match="two columns named 'predicted'"):
        write_columns(source, tmp_path / "out", columns, zip(read_columns(source, columns), "X", strict=True))
    assert not (tmp_path / "out").exists()


def test_reads_columns_by_number_and_by_name_and_words_alone(tmp_path):
    numbered = write(tmp_path / "numbered", "O\tB-X\tNew York\r\nO\tO\tis\r\n")
    expected = Sentence(("New York", "is"), ("B-X", "O"), document=None)
    assert read_columns(numbered, Columns(word=2, tag=1)) == (expected,)
    named = write(tmp_path / "named", "pos\ttag\ttoken\n" + numbered.read_text())
    assert read_columns(named, Columns(word="token", tag="tag")) == (expected,)
    words = write(tmp_path / "words", "New\nYork\n")
    assert read_columns(words, Columns(tag=None)) == (Sentence(("New", "York"), (), document=None),)


def test_reads_the_encoding_that_is_given(tmp_path):
    path = write(tmp_path / "f", "España B-LOC\n".encode("latin-1"))
    assert read_columns(path, Columns(encoding="latin-1"))[0].words == ("España",)
    with pytest.raises(UserError, match="is not in utf-8-sig; give its encoding"):
        read_columns(path, Columns())
    with pytest.raises(UserError, match="is not in utf-16; give its encoding"):
        read_columns(path, Columns(encoding="utf-16"))
    with pytest.raises(UserError, match="encoding 'klingon' is unknown"):
        Columns(encoding="klingon")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path, encoding):
    path = write(tmp_path / "f", "\ufeff-DOCSTART- O\n\nRom B-X\n")
    assert read_columns(path, Columns(encoding=encoding)) == (Sentence(("Rom",), ("B-X",), document=1),)
    named = write(tmp_path / "named", "\ufeffword tag\nRom B-X\n")
    columns = Columns("word", "tag", encoding=encoding)
    assert read_columns(named, columns) == (Sentence(("Rom",), ("B-X",), document=None),)


def test_a_tag_that_the_encoding_lacks_is_named(tmp_path):
    columns = Columns(tag=None, encoding="ascii")
    source = write(tmp_path / "f", "Rom\n")
    with pytest.raises(UserError, match=r"ascii cannot write 'é' of a tag; convert .*f to UTF-8"):
        write_columns(source, tmp_path / "out", columns, [(Sentence(("Rom",), (), None), ["B-café"])])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_becomes_iob2(scheme):
    tags = SCHEMES[scheme]
    assert list(convert_tags(tags, scheme, places(len(tags)))) == SCHEMES["iob2"]


def as_scheme(iob2: list[str], scheme: str) -> list[str]:
    """Literal rules: what each tag is called depends on its neighbours."""
    padded = ["O", *iob2, "O"]
    written = []
    for before, tag, after in zip(padded, padded[1:], padded[2:], strict=False):
        begins, ends = tag.startswith("B"), after != f"I-{tag[2:]}"
        if tag == "O" or scheme == "iob2":
            written.append(tag)
        elif scheme == "iob1":
            written.append(("B" if begins and before[2:] == tag[2:] else "I") + tag[1:])
        else:
            written.append({(1, 1): "S", (1, 0): "B", (0, 1): "E", (0, 0): "I"}[begins, ends] + tag[1:])
    return written


def test_random_tags_come_back_from_every_scheme():
    rng = np.random.default_rng(0)
    for _ in range(300):
        tags: list[str] = []
        for _ in range(rng.integers(1, 9)):
            open_tags = [f"I-{tags[-1][2:]}"] * 3 if tags and tags[-1] != "O" else []
            tags.append(str(rng.choice(["O", "B-X", "B-Y", *open_tags])))
        for scheme in SCHEMES:
            written = as_scheme(tags, scheme)
            assert list(convert_tags(written, scheme, places(len(tags)))) == tags
            assert tags_in_scheme(tags, scheme) == written


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tags_of_a_model_are_written_as_the_metric_reads_them(scheme):
    rng = np.random.default_rng(1)
    for _ in range(300):
        tags = [str(tag) for tag in rng.choice(["O", "B-X", "I-X", "B-Y", "I-Y"], rng.integers(1, 9))]
        repaired = list(convert_tags(tags_in_scheme(tags, scheme), scheme, places(len(tags))))
        assert get_entities(repaired) == get_entities(tags)


@pytest.mark.parametrize(
    ("scheme", "tags", "message"),
    [
        ("iob2", "O I-X", "f:2: I-X can't follow O in iob2"),
        ("iob2", "I-X", "f:1: I-X can't follow the start of a sentence"),
        ("iob2", "B-X I-Y", "f:2: I-Y can't follow B-X"),
        ("iob1", "O B-X", "f:2: B-X can't follow O in iob1"),
        ("iob1", "I-Y B-X", "f:2: B-X can't follow I-Y"),
        ("iobes", "B-X O", "f:2: O can't follow B-X"),
        ("iobes", "O E-X", "f:2: E-X can't follow O"),
        ("iobes", "S-X I-X", "f:2: I-X can't follow S-X"),
        ("iobes", "B-X S-X", "f:2: S-X can't follow B-X"),
        ("iobes", "O B-X", "f:2: the sentence ends in B-X"),
        ("iob2", "S-X", "f:1: 'S-X' is not a tag of iob2, which has O, B-TYPE, I-TYPE"),
        ("iob2", "B-", "'B-' is not a tag"),
        ("iob2", "U-X", "'U-X' is not a tag .*; BILOU's U- and L- are S- and E- in iobes"),
        ("iobes", "BI-X", "'BI-X' is not a tag"),
        ("iob2", "PER", "'PER' is not a tag .*; for tags of single words, .* give --scheme none"),
    ],
)
def test_a_tag_that_does_not_fit_is_named_with_its_place(scheme, tags, message):
    with pytest.raises(UserError, match=message):
        convert_tags(tags.split(), scheme, places(len(tags.split())))


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", Columns(), "has no words"),
        ("-DOCSTART- O\n\n", Columns(), "has no words"),
        ("a O\nb\n", Columns(), ":2 has 1 columns; the lines before it have 2"),
        ("a O\n", Columns(tag=2), ":1 has 2 columns, numbers 0 to 1, so no 2"),
        ("w\tt\na\tO\n", Columns(tag="tag"), ":2: no column is named 'tag'; the first line names w, t"),
        ("\tO\n", Columns(), ":1: column 0 is empty"),
        ("a I-X\n", Columns(), "f:1: I-X can't follow"),
    ],
)
def test_says_which_line_is_wrong(tmp_path, text, columns, message):
    with pytest.raises(UserError, match=message):
        read_columns(write(tmp_path / "f", text), columns)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="none can't be read: No such file"):
        read_columns(tmp_path / "none", Columns())


def test_predictions_are_a_column_more_of_the_same_file(tmp_path):
    source, output = write(tmp_path / "f", CONLL_2003), tmp_path / "out"
    sentences = read_columns(source, IOB1)
    write_columns(source, output, IOB1, [(sentence, sentence.tags) for sentence in sentences])
    predicted, lines = output.read_text(), CONLL_2003.split("\n")
    assert [line.rpartition(" ")[0] if line.strip() else line for line in predicted.split("\n")] == lines
    assert read_columns(output, IOB1) == sentences
    assert read_columns(output, Columns(tag=3, scheme="iob1")) == sentences
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_added_column_has_a_name_and_tabs_where_the_file_has_them(tmp_path):
    source, columns = write(tmp_path / "f", "word\ttag\nNew York\tB-X\n"), Columns(word="word", tag="tag")
    write_columns(source, tmp_path / "out", columns, zip(read_columns(source, columns), [["O"]], strict=True))
    assert (tmp_path / "out").read_text() == "word\ttag\tpredicted\nNew York\tB-X\tO\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_end_as_the_first_one_of_the_file(tmp_path, end):
    source = write(tmp_path / "f", f"a{end}{end}b{end}".encode())
    columns = Columns(tag=None, scheme="none")
    write_columns(source, tmp_path / "out", columns, zip(read_columns(source, columns), "XY", strict=True))
    assert (tmp_path / "out").read_bytes() == f"a X{end}{end}b Y{end}".encode()


@pytest.mark.parametrize(
    ("later", "place"), [("a\nb\n\nd\n", "f:4"), ("a\nb\n", "f"), ("a\nb\n\nc\nd\n", "f:5")]
)
def test_words_that_were_changed_after_they_were_read_get_no_tags(tmp_path, later, place):
    source, columns = write(tmp_path / "f", "a\nb\n\nc\n"), Columns(tag=None, scheme="none")
    tagged = [(sentence, sentence.words) for sentence in read_columns(source, columns)]
    source.write_text(later)
    with pytest.raises(UserError, match=f"{place} has other words than when it was first read"):
        write_columns(source, tmp_path / "out", columns, tagged)
    assert not (tmp_path / "out").exists()


def test_words_are_not_counted_from_the_end_where_tags_may_be_missing():
    with pytest.raises(UserError, match=r"--word-column is -2; count from 0"):
        Columns(word=-2)
