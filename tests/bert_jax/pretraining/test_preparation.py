"""What is said of a corpus once it is made."""

from pathlib import Path

import pytest

from bert_jax.pretraining.preparation import make_corpus
from data_pipeline.preparing.inputs import Source
from data_pipeline.preparing.local_runner import LocalRunner
from data_pipeline.preparing.prepare import PrepareSettings
from tests.data_pipeline.preparing.small_text import write_vocabulary


@pytest.mark.parametrize(("holdout", "warned"), [(0.01, True), (0.0, False)])
def test_it_is_said_if_no_document_is_held_out_though_some_were_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], holdout: float, warned: bool
) -> None:
    # The documents with the lowest hashes, which are chosen, are all of characters without a token.
    empty = "".join("\u200b" * count + "\n\n" for count in range(1, 41))
    (tmp_path / "text.txt").write_text(f"{empty}the cat sat\n\non the mat\n")
    settings = PrepareSettings(
        Source((str(tmp_path / "text.txt"),), format="sentences"),
        vocab=str(write_vocabulary(tmp_path / "vocab.txt")),
        holdout=holdout,
    )
    assert make_corpus(settings, str(tmp_path / "corpus"), runner=LocalRunner(1)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("no document is held out, so runs have no evaluation" in said) == warned
