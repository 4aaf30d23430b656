"""Checkpoints of google-research/bert, read and written back with TensorFlow's own code."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from bert_jax.formats import google_tf1
from bert_jax.formats.convert import convert
from bert_jax.formats.open_model import open_model, open_vocabulary
from bert_jax.formats.pretrained import PretrainedModel
from bert_jax.objectives import MaskedLM, ReplacedTokenDetection
from data_pipeline import tf1_checkpoint
from data_pipeline.corpus.vocabulary_file import Vocabulary
from data_pipeline.errors import UserError
from data_pipeline.tensorflow_cpu import tf
from tests.bert_jax.formats.family_directories import small_config, small_model
from tests.bert_jax.formats.foreign_directories import (
    PIECES,
    google_tensors,
    stored_weights,
    write_huggingface,
)
from tests.bert_jax.formats.same_tensors import assert_same
from tests.bert_jax.formats.tensorflow_here import use_tensorflow_here
from tests.bert_jax.small_run import make_run
from tests.full_disk import files_no_larger_than
from tests.golden.make_model_golden import SIZES

PARTS = ("index", "data-00000-of-00001")
CONFIG = {
    **SIZES,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3,
    "initializer_range": 0.05,
}


def write_google(directory: Path, tensors: dict[str, np.ndarray], prefix: str = "bert_model.ckpt") -> Path:
    directory.mkdir(parents=True)
    tf.raw_ops.SaveV2(
        prefix=str(directory / prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    (directory / "bert_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return directory


def variables(directory: Path) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(directory / "bert_model.ckpt"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in the middle of training, with Adam's moments."""
    tensors = google_tensors()
    slots = {f"{name}/adam_{m}": array for name, array in tensors.items() for m in "mv"}
    return write_google(
        tmp_path_factory.mktemp("tf1") / "google",
        {**tensors, **slots, "global_step": np.array(7, np.int64)},
    )


@pytest.fixture(scope="module")
def written(directory: Path) -> tuple[Path, PretrainedModel]:
    """The checkpoint converted to transformers' names and back, and the model that was read."""
    model = convert(directory, directory.parent / "hf")
    convert(directory.parent / "hf", directory.parent / "back", "tf1")
    return directory.parent / "back", model


def test_every_variable_comes_back_byte_by_byte(written: tuple[Path, PretrainedModel]) -> None:
    assert open_vocabulary(written[0]) == written[1].vocabulary
    assert_same(variables(written[0]), google_tensors())


def test_it_is_the_same_model_as_under_transformers_names(
    tmp_path: Path, written: tuple[Path, PretrainedModel]
) -> None:
    theirs = open_model(write_huggingface(tmp_path / "hf", stored_weights()))
    jax.tree.map(np.testing.assert_array_equal, written[1].params, theirs.params)
    assert written[1].left_out == ()
    config = written[1].config
    assert (config.activation, written[1].has_assumed_activation) == ("gelu_tanh", True)
    rates = config.dropout_rate, config.attention_dropout_rate, config.initializer_range
    assert rates == (0.2, 0.3, 0.05)


def test_what_googles_configuration_has_no_field_for_travels(
    written: tuple[Path, PretrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_tensorflow_here(monkeypatch)
    files = {path.name for path in written[0].iterdir()}
    assert files == {"bert_config.json", "vocab.txt", *(f"bert_model.ckpt.{part}" for part in PARTS)}
    config = json.loads((written[0] / "bert_config.json").read_text())
    assert config["bert_jax"] == {
        "activation": "gelu_tanh",
        "layer_norm_epsilon": 1e-12,
        "casing": "uncased",
    }
    assert {name: config[name] for name in CONFIG} == CONFIG
    told = {"activation": "gelu_exact", "layer_norm_epsilon": 1e-5, "casing": "cased"}
    (written[0] / "bert_config.json").write_text(json.dumps({**CONFIG, "bert_jax": told}))
    model = open_model(written[0])
    assert (model.config.activation, model.has_assumed_activation) == ("gelu_exact", False)
    assert model.config.layer_norm_epsilon == 1e-5
    assert model.tokenizer.encode("A").tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_what_google_cannot_hold_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "ltr", objective="ltr")
    with pytest.raises(UserError, match="no causal attention"):
        convert(tmp_path / "ltr", tmp_path / "out", "tf1")
    make_run(tmp_path / "spiece", kind="sentencepiece")
    with pytest.raises(UserError, match="reads only WordPiece"):
        convert(tmp_path / "spiece", tmp_path / "out", "tf1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ltr", "spiece"]
    relu = small_model("bert", MaskedLM(), ("encoder", "pooler"), pooler="relu")
    with pytest.raises(UserError, match="no pooler relu, only tanh"):
        google_tf1.write(tmp_path, relu)
    with pytest.raises(UserError, match="no BERT with segments none, only learnt"):
        google_tf1.entries(small_config("bert", type_vocab_size=0))


def test_a_head_of_another_objective_is_refused_by_name(tmp_path: Path) -> None:
    rtd = small_model("bert", ReplacedTokenDetection(), ("encoder", "replaced_token"))
    vocabulary = Vocabulary("wordpiece", "uncased", b"")
    with pytest.raises(UserError, match="no names for replaced_token of small, which it has learned"):
        google_tf1.write(tmp_path, dataclasses.replace(rtd, vocabulary=vocabulary))
    assert not list(tmp_path.iterdir())


def test_missing_and_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_tensorflow_here(monkeypatch)
    broken = write_google(tmp_path / "google", google_tensors(), "model.ckpt-5")
    data = broken / "model.ckpt-5.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UserError, match=r"checkpoint \S+model\.ckpt-5 cannot be read") as caught:
        open_model(broken)
    assert "\n" not in str(caught.value)
    (broken / "other.index").touch()
    with pytest.raises(UserError, match=r"must hold one checkpoint.* found: model\.ckpt-5, other"):
        open_model(broken)
    (broken / "vocab.txt").write_bytes(b"na\xefve\n")
    with pytest.raises(UserError, match=r"/vocab\.txt is not UTF-8 at byte 2"):
        open_model(broken)
    (broken / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"has no vocab\.txt"):
        open_model(broken)
    (broken / "bert_config.json").write_text('{"hidden_size": 16, "hidden_act": "gelu"}')
    with pytest.raises(UserError, match=r"bert_config\.json lacks attention_probs_dropout_prob, "):
        open_model(broken)


def test_a_checkpoint_of_tensorflow_2_is_known(tmp_path: Path) -> None:
    directory = write_google(tmp_path / "google", google_tensors())
    tf.train.Checkpoint(encoder=tf.Variable([1.0])).write(str(directory / "bert_model.ckpt"))
    with pytest.raises(
        UserError, match=r"bert_model\.ckpt was written by TensorFlow 2 \(Model Garden\), with"
    ):
        open_model(directory)


def test_a_machine_without_tensorflow_is_told_so(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from data_pipeline.tf1_checkpoint import main\n"
        "sys.exit(main('read', 'a', 'b'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "TensorFlow's checkpoints need tensorflow: pip install tensorflow\n"


def test_a_full_disk_may_have_room_another_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"a": np.zeros(1000, np.float32)}, tmp_path / "tensors")
    with files_no_larger_than(2000):
        assert tf1_checkpoint.main("write", str(tmp_path / "model"), str(tmp_path / "tensors")) == 69
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "TensorFlow cannot write the checkpoint (File too large); run the same command again"
