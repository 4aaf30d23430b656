"""What the start of a run leaves in its work directory."""

import dataclasses
from pathlib import Path

from bert_jax.pretraining.begin import begin_or_resume
from bert_jax.retention import Kept
from bert_jax.workdir.record import RunRecord, read_record, write_record
from data_pipeline.corpus.store import Description
from experiments.base import BASE

RECORD = RunRecord("base", BASE, "fingerprint", ({"command": "bert-jax pretrain base"},), kept=Kept(3))


def test_the_tokenizer_of_another_corpus_does_not_stay(tmp_path: Path) -> None:
    """Records tell none of their own, so what an earlier start left would be taken for theirs."""
    run, records = tmp_path / "run", tmp_path / "records"
    records.mkdir()
    (run / "tokenizer").mkdir(parents=True)
    (run / "tokenizer" / "vocab.txt").touch()
    write_record(run, RECORD)
    for fingerprint, stays in (("fingerprint", True), ("another", False)):
        corpus = Description(str(records), False, None, None, False, fingerprint)
        now = dataclasses.replace(RECORD, corpus_fingerprint=fingerprint)
        assert begin_or_resume(run, now, corpus, None, None) == (RECORD.starts[0], Kept(3))
        assert (run / "tokenizer" / "vocab.txt").exists() == stays
        assert read_record(run) == now
