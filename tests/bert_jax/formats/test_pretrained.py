"""Opening a model by its directory, and the errors for directories that are not models."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model
from bert_jax.training.checkpoints import saved_steps
from bert_jax.workdir.record import read_record, write_record
from data_pipeline.errors import UserError
from tests.bert_jax.formats.foreign_directories import stored_weights, write_huggingface
from tests.bert_jax.small_run import make_run


def test_what_is_no_model_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has neither config\.json .* nor bert_config\.json"):
        open_model(tmp_path)
    with pytest.raises(UserError, match="is not a directory"):
        open_model(tmp_path / "absent")
    (tmp_path / "config.json").write_text('{"experiment": {}}')
    with pytest.raises(UserError, match="is not a run's"):
        open_model(tmp_path)


def test_a_pooler_that_is_the_transform_of_the_language_model_head_is_read_from_it(tmp_path: Path) -> None:
    experiment, _ = make_run(tmp_path / "run", "mlm", encoder="modern")
    assert open_model(tmp_path / "run").missing == ("pooler", "next_sentence")
    record = read_record(tmp_path / "run")
    model = dataclasses.replace(experiment.model, pooler="transform")
    write_record(
        tmp_path / "run",
        dataclasses.replace(record, experiment=dataclasses.replace(experiment, model=model)),
    )
    read = open_model(tmp_path / "run")
    pooler, head = read.params["pooler"], read.params["language_model"]
    assert pooler == {name: head[name] for name in ("dense", "layer_norm")}
    for output_format in ("npz", "hf"):
        convert(tmp_path / "run", tmp_path / output_format, output_format)
        assert open_model(tmp_path / output_format).fingerprint() == read.fingerprint()


def test_a_run_is_named_by_its_directory_and_the_step_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "seed-1")
    (step,) = saved_steps(tmp_path / "seed-1")
    newest = open_model(tmp_path / "seed-1")
    assert (newest.name, newest.facts["experiment"]) == ("seed-1", "tiny")
    assert open_model(tmp_path / "seed-1", step).name == f"seed-1-step-{step}"
    monkeypatch.chdir(tmp_path / "seed-1")
    assert open_model(Path()).name == "seed-1"


def test_a_damaged_npz_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "npz", "npz")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "npz", copy)
    (copy / "model.npz").write_bytes((copy / "model.npz").read_bytes()[:5000])
    with pytest.raises(UserError, match=r"model\.npz cannot be read"):
        open_model(copy)
    (copy / "model.npz").write_bytes(b"")
    with pytest.raises(UserError, match=r"model\.npz cannot be read"):
        open_model(copy)
    with (copy / "model.npz").open("wb") as file:
        np.save(file, np.ones(3))  # one array, not an archive of many
    with pytest.raises(UserError, match=r"model\.npz cannot be read"):
        open_model(copy)
    config = json.loads((copy / "config.json").read_text())
    for heads in (2.5, 0, 2**31):
        config["model"]["num_heads"] = heads
        (copy / "config.json").write_text(json.dumps(config))
        with pytest.raises(UserError, match=r"model\.num_heads is \S+; it must be (a whole|at )"):
            open_model(copy)
    config["model"] |= {"num_heads": 4, "num_layers": 10**9}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"model\.num_layers is 1000000000; it must be at most 1024"):
        open_model(copy)
    config["model"]["num_layers"] = 2
    del config["model"]["num_heads"]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config\.json is not of this format: .*no num_heads"):
        open_model(copy)


def test_a_token_without_word_embedding_is_refused_where_it_occurs(tmp_path: Path) -> None:
    directory = write_huggingface(tmp_path / "hf", stored_weights())
    with (directory / "vocab.txt").open("a") as file:
        file.write("zebra\n")
    model = bert_jax.load_model(directory)
    assert model.pretrained.tokens_without_embedding == ["zebra"]
    assert model.encode(["a b"]).tokens == [["[CLS]", "a", "b", "[SEP]"]]
    for use in (model.encode, lambda texts: model.fill_mask(texts[0] + "[MASK]")):
        with pytest.raises(UserError, match="has 61 word embeddings, none for the token 'zebra' with id 61"):
            use(["a zebra"])
