"""Hugging Face's directories, read and written back."""

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import normalizers

from bert_jax.formats.convert import convert
from bert_jax.formats.families.bert import BERT
from bert_jax.formats.open_model import open_model
from bert_jax.formats.tensors import to_tensors
from data_pipeline.corpus.vocabulary_file import SPECIAL_TOKENS, Vocabulary
from data_pipeline.errors import UserError
from tests.bert_jax.formats.foreign_directories import PIECES, stored_weights, write_huggingface
from tests.bert_jax.formats.same_tensors import assert_same

WORDS = "bert.embeddings.word_embeddings.weight"
ENCODER = ("embeddings.", "encoder.", "pooler.")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The stored model, in a directory with a vocab.txt alone as its tokenizer."""
    return write_huggingface(tmp_path / "hf", stored_weights())


def written_back(directory: Path) -> dict[str, np.ndarray]:
    """The tensors after conversion to this project's npz format and back."""
    convert(directory, directory / "npz", "npz")
    convert(directory / "npz", directory / "back", "hf")
    return load_file(directory / "back" / "model.safetensors")


def test_every_tensor_comes_back_byte_by_byte(directory: Path) -> None:
    assert_same(written_back(directory), stored_weights())
    config = json.loads((directory / "back" / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    assert config["hidden_act"] == "gelu"
    assert (directory / "back" / "vocab.txt").read_bytes() == (directory / "vocab.txt").read_bytes()


def test_an_array_that_the_format_does_not_know_is_not_left_out(tmp_path: Path) -> None:
    model = open_model(write_huggingface(tmp_path / "hf", stored_weights()))
    learnt = {"encoder": {**model.params["encoder"], "relative_positions": np.zeros(3, np.float32)}}
    with pytest.raises(UserError, match="no place for encoder/relative_positions, which the model has"):
        to_tensors({**model.params, **learnt}, BERT.entries(model.config))


def test_a_bert_model_without_prefix_or_heads(tmp_path: Path) -> None:
    bare = {name.removeprefix("bert."): array for name, array in stored_weights().items()}
    bare = {name: array for name, array in bare.items() if name.startswith(ENCODER)}
    directory = write_huggingface(tmp_path / "hf", bare | {"embeddings.position_ids": np.arange(20)[None]})
    model = open_model(directory)
    assert model.missing == ("language_model", "next_sentence")
    assert model.left_out == ()
    assert_same(written_back(directory), bare)


def test_names_of_2019_and_other_heads(tmp_path: Path) -> None:
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in stored_weights().items()
        if not name.startswith(("cls.", "bert.pooler"))
    }
    directory = write_huggingface(tmp_path / "hf", old | {"classifier.weight": np.ones((9, 16), np.float32)})
    model = open_model(directory)
    assert model.missing == ("pooler", "language_model", "next_sentence")
    assert model.left_out == ("classifier.weight",)
    norm = model.params["encoder"]["layer_1"]["output_layer_norm"]["scale"]
    np.testing.assert_array_equal(norm, old["bert.encoder.layer.1.output.LayerNorm.gamma"])


def test_shards(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    names = sorted(stored_weights())
    weight_map = {name: f"model-0000{1 + i % 3}-of-00003.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        part = {name: stored_weights()[name] for name in names if weight_map[name] == file}
        save_file(part, directory / file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(written_back(directory), stored_weights())
    (directory / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00003\.safetensors cannot be read"):
        open_model(directory)


def test_a_left_to_right_model_stays_one(tmp_path: Path) -> None:
    weights = {n: a for n, a in stored_weights().items() if "pooler" not in n and "seq_relationship" not in n}
    directory = write_huggingface(tmp_path / "hf", weights, is_decoder=True)
    assert open_model(directory).config.attention == "causal"
    assert_same(written_back(directory), weights)
    config = json.loads((directory / "back" / "config.json").read_text())
    assert (config["is_decoder"], config["architectures"]) == (True, ["BertLMHeadModel"])


def test_a_tied_decoder_is_known_and_another_one_refused(tmp_path: Path) -> None:
    weights = stored_weights()
    words = weights["bert.embeddings.word_embeddings.weight"]
    tied = {"cls.predictions.decoder.weight": words, "cls.predictions.decoder.bias": words[:, 0]}
    directory = write_huggingface(tmp_path / "tied", weights | tied)
    assert_same(written_back(directory), weights)
    directory = write_huggingface(
        tmp_path / "untied", weights | {"cls.predictions.decoder.weight": words + 1}
    )
    with pytest.raises(UserError, match="only tied ones"):
        open_model(directory)


def test_a_bias_by_its_second_name_alone_is_known(tmp_path: Path) -> None:
    weights = stored_weights()
    bias = weights.pop("cls.predictions.bias")
    directory = write_huggingface(tmp_path / "hf", weights | {"cls.predictions.decoder.bias": bias})
    assert_same(written_back(directory), stored_weights())


def write_torch(directory: Path, content: object) -> Path:
    """A directory whose weights are a `pytorch_model.bin`, of these bytes or of what torch saves."""
    import torch

    write_huggingface(directory, {})
    (directory / "model.safetensors").unlink()
    file = directory / "pytorch_model.bin"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    return directory


def quantized(words: Any) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(words, 0.1, 0, torch.qint8)


def torch_weights() -> dict[str, Any]:
    import torch

    return {name: torch.tensor(array) for name, array in stored_weights().items()}


@pytest.mark.parity
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"state_dict": {}, "epoch": 3},
            r"pytorch_model\.bin holds 'state_dict', which is no tensor; it must",
        ),
        ([1], r"pytorch_model\.bin holds a list; it must be a model's state_dict"),
    ],
)
def test_a_training_checkpoint_of_torch_is_named(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_model(write_torch(tmp_path / "hf", content))


@pytest.mark.parity
def test_parameters_that_torch_saved_are_read(tmp_path: Path) -> None:
    import torch

    weights = {name: torch.nn.Parameter(tensor) for name, tensor in torch_weights().items()}
    assert_same(written_back(write_torch(tmp_path / "hf", weights)), stored_weights())


@pytest.mark.parity
def test_a_damaged_file_of_torch_is_one_line_that_does_not_advise_to_trust_it(tmp_path: Path) -> None:
    import torch

    torch.save(torch_weights(), tmp_path / "new")
    torch.save(torch_weights(), tmp_path / "old", _use_new_zipfile_serialization=False)
    new, old = ((tmp_path / name).read_bytes() for name in ("new", "old"))
    cut = [whole[:size] for whole in (new, old) for size in (0, 1, 5, 30, 1000, len(whole) - 10)]
    code = pickle.dumps({"a": Path("b")})
    for number, content in enumerate([*cut, b"some text\n", code]):
        with pytest.raises(
            UserError, match=r"pytorch_model\.bin cannot be read: it was truncated, or"
        ) as caught:
            open_model(write_torch(tmp_path / str(number), content))
        assert "trust" not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parity
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: {1: words}, r"holds 1, which is no tensor; it must"),
        (lambda words: {WORDS: words.to_sparse()}, "sparse, nested, quantized, complex or without"),
        (lambda words: {WORDS: words.to("meta")}, "sparse, nested, quantized, complex or without"),
        (lambda words: {WORDS: words.cfloat()}, "sparse, nested, quantized, complex or without"),
        (lambda words: {WORDS: quantized(words)}, "sparse, nested, quantized, complex or without"),
        (lambda words: {WORDS: words.char()}, "is int8 instead of float"),
    ],
)
def test_tensors_of_torch_that_are_no_weights_are_refused(
    tmp_path: Path, change: Callable[[Any], dict], message: str
) -> None:
    weights = torch_weights()
    with pytest.raises(UserError, match=message):
        open_model(write_torch(tmp_path / "hf", {**weights, **change(weights[WORDS])}))


def test_float8_is_refused(directory: Path) -> None:
    entry = {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}
    header = json.dumps({"bert.x": entry}).encode()
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"00")
    with pytest.raises(UserError, match=r"model\.safetensors has a dtype that numpy lacks .*float8"):
        open_model(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: words.astype(np.complex64), "is complex64 instead of float"),
        (lambda words: words.astype(np.int8), "is int8 instead of float"),
        (lambda words: words * np.nan, rf"hf: {WORDS} holds NaN or infinity"),
        (lambda words: np.where(words == words.max(), np.inf, words), "holds NaN or infinity"),
    ],
)
def test_weights_must_be_finite_floats(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    weights = stored_weights()
    with pytest.raises(UserError, match=message):
        open_model(write_huggingface(tmp_path / "hf", {**weights, WORDS: change(weights[WORDS])}))


@pytest.mark.parametrize("weight_map", [None, ["a"], {"a": 1}, {"a": None}, {"a": ["b"]}])
def test_an_index_must_name_files(directory: Path, weight_map: object) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(UserError, match=r"index\.json has no weight_map from tensors to the names"):
        open_model(directory)


def test_a_tokenizer_with_more_tokens_than_embeddings_is_not_converted(
    tmp_path: Path, directory: Path
) -> None:
    with (directory / "vocab.txt").open("a") as file:
        file.write("zebra\n")
    with pytest.raises(UserError, match="tokens beyond the model's 61 word embeddings, such as 'zebra'"):
        convert(directory, tmp_path / "npz", "npz")
    assert not (tmp_path / "npz").exists()


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    weights = {name: array.astype(np.float16) for name, array in stored_weights().items()}
    directory = write_huggingface(tmp_path / "hf", weights)
    expected = {name: array.astype(np.float32) for name, array in weights.items()}
    assert_same(written_back(directory), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'; valid: 'bert'"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'; valid: 'absolute'"),
        ({"hidden_act": "tanh"}, "hidden_act 'tanh'; valid: 'gelu'"),
        ({"add_cross_attention": True}, "add_cross_attention True"),
        (
            {"hidden_size": "16"},
            r"config\.json: hidden_size is '16'; it must be a whole number",
        ),
        ({"num_hidden_layers": 2.5}, r"num_hidden_layers is 2\.5; it must be a whole number"),
        (
            {"num_hidden_layers": 10**9},
            "num_hidden_layers is 1000000000; it must be at most 1024",
        ),
        ({"num_attention_heads": True}, "num_attention_heads is True; it must be a whole number"),
        ({"vocab_size": 10**15}, "vocab_size is 1000000000000000; it must be at most"),
        ({"num_attention_heads": 3}, r"config\.json: model\.num_heads \(3\) does not divide"),
        ({"hidden_dropout_prob": "0.1"}, r"config\.json has hidden_dropout_prob '0\.1'; it must be a number"),
        ({"model_type": []}, r"config\.json has model_type \[\]; valid: 'bert'"),
        ({"is_decoder": "no"}, "is_decoder 'no'; valid: False, True"),
        ({"num_hidden_layers": 3}, r"layer\.2\.attention\.self\.query\.weight is missing;.* and 13 more"),
        ({"num_hidden_layers": 1}, r"layer\.1\.\S+ has no place in it;.* and 13 more"),
        ({"intermediate_size": 25}, r"intermediate\.dense\.weight is \[24, 16\] instead of \[25, 16\]"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, changes: dict, message: str) -> None:
    directory = write_huggingface(tmp_path / "hf", stored_weights(), **changes)
    with pytest.raises(UserError, match=message) as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    directory = write_huggingface(tmp_path / "hf", {"transformer.wte.weight": np.ones((61, 16), np.float32)})
    with pytest.raises(UserError, match=r"bert\.embeddings\.word_embeddings\.weight is missing; .* 34 more"):
        open_model(directory)


def test_half_a_head_is_refused(tmp_path: Path) -> None:
    weights = stored_weights()
    del weights["cls.seq_relationship.bias"]
    with pytest.raises(UserError, match=r"cls\.seq_relationship\.bias is missing"):
        open_model(write_huggingface(tmp_path / "hf", weights))


def test_missing_and_damaged_files_are_named(directory: Path) -> None:
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        open_model(directory)
    weights.unlink()
    with pytest.raises(UserError, match=r"no weights; looked for model\.safetensors, .*pytorch_model\.bin"):
        open_model(directory)
    save_file(stored_weights(), weights)
    (directory / "vocab.txt").write_bytes(b"na\xefve\n")
    with pytest.raises(UserError, match=r"/vocab\.txt is not UTF-8 at byte 2"):
        open_model(directory)
    (directory / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"no tokenizer; looked for tokenizer\.json and vocab\.txt"):
        open_model(directory)
    for content in ("{", "[" * 2000):
        (directory / "config.json").write_text(content)
        with pytest.raises(UserError, match=r"config\.json cannot be read"):
            open_model(directory)


def test_casing_of_a_directory_with_a_vocabulary_alone(directory: Path) -> None:
    assert open_model(directory).tokenizer.encode("A").tokens == ["[CLS]", "a", "[SEP]"]
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert open_model(directory).tokenizer.encode("A").tokens == ["[CLS]", "[UNK]", "[SEP]"]
    (directory / "tokenizer_config.json").unlink()
    capital = ["A" if piece == "a" else piece for piece in PIECES]
    (directory / "vocab.txt").write_text("\n".join(capital) + "\n")
    assert open_model(directory).tokenizer.encode("A").tokens == ["[CLS]", "A", "[SEP]"]


def write_accented(directory: Path) -> Path:
    """A Hugging Face directory whose vocabulary has an accent and a Chinese character."""
    write_huggingface(directory, stored_weights())
    pieces = {"b": "ä", "c": "北"}
    (directory / "vocab.txt").write_text("".join(f"{pieces.get(piece, piece)}\n" for piece in PIECES))
    return directory


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"do_lower_case": True, "strip_accents": False}, ["ä", "北", "a"]),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, ["[UNK]"]),
        ({"do_lower_case": False, "strip_accents": True}, ["[UNK]", "北", "a"]),
        ({"do_lower_case": True, "strip_accents": None}, ["a", "北", "a"]),
    ],
)
def test_settings_of_a_directory_with_a_vocabulary_are_kept(
    tmp_path: Path, settings: dict, tokens: list[str]
) -> None:
    directory = write_accented(tmp_path / "hf")
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    convert(directory, tmp_path / "out")
    for model in (open_model(directory), open_model(tmp_path / "out")):
        assert model.tokenizer.encode("Ä北a").tokens[1:-1] == tokens
        assert (model.vocabulary is None) is (tokens != ["a", "北", "a"])


ADDED = {"added_tokens.json": {"[E1]": 61, "covid": 62}}
ADDED_AND_SPECIAL = {**ADDED, "special_tokens_map.json": {"additional_special_tokens": ["[E1]"]}}
LISTED = {
    "tokenizer_config.json": {
        "added_tokens_decoder": {
            "61": {"content": "[E1]", "special": True, "normalized": False},
            "62": {"content": "covid", "special": False, "normalized": True},
            "0": {"content": "[PAD]", "special": True},
        }
    }
}


@pytest.mark.parametrize("files", [ADDED, ADDED_AND_SPECIAL, LISTED])
def test_tokens_added_to_a_vocabulary_are_found(directory: Path, files: dict[str, dict]) -> None:
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    model = open_model(directory)
    assert model.tokenizer.encode("a [E1] Covid").ids[1:-1] == [5, 61, 62]
    assert [token.special for _, token in sorted(model.tokenizer.get_added_tokens_decoder().items())][5:] == [
        files is not ADDED,
        False,
    ]
    assert model.vocabulary is None  # vocab.txt lacks the added tokens
    model.tokenizer.save(str(directory / "tokenizer.json"))  # as transformers does
    assert open_model(directory).vocabulary is None
    (directory / "tokenizer.json").unlink()
    (directory / "vocab.txt").write_text("\n".join(PIECES[:-1]) + "\n")
    with pytest.raises(UserError, match=r"'\[E1\]' with id 61; after its vocab\.txt .* would get 60"):
        open_model(directory)


def test_berts_own_added_tokens_change_nothing(directory: Path) -> None:
    listed = {str(index): {"content": token, "special": True} for index, token in enumerate(SPECIAL_TOKENS)}
    (directory / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    assert open_model(directory).vocabulary is not None
    (directory / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": [1]}))
    with pytest.raises(UserError, match=r"tokenizer_config\.json lists added tokens in another form"):
        open_model(directory)


NAMED: list[dict[str, Any]] = [
    {"additional_special_tokens": ["a", "b"]},
    {"additional_special_tokens": [{"content": "a", "lstrip": False, "normalized": False}], "x_token": "b"},
    {"extra_special_tokens": {"first": "a", "second": "b"}},
    {"bos_token": {"__type": "AddedToken", "content": "a", "special": True}, "eos_token": "b"},
]


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("settings", NAMED)
@pytest.mark.parametrize("has_tokenizer_file", [False, True])
def test_special_tokens_that_one_file_names_are_found(
    directory: Path, file: str, settings: dict, has_tokenizer_file: bool
) -> None:
    if has_tokenizer_file:
        open_model(directory).tokenizer.save(str(directory / "tokenizer.json"))
    assert open_model(directory).tokenizer.encode("xab").tokens[1:-1] == ["[UNK]"]
    further = {"c_token": None, "add_d_token": True, "split_special_tokens": False, "e_token": "[E1]"}
    (directory / file).write_text(json.dumps({**settings, **further}))
    model = open_model(directory)
    encoding = model.tokenizer.encode("xab [E1]", add_special_tokens=False)
    assert encoding.tokens[:3] == ["x", "a", "b"]
    assert model.tokenizer.decode(encoding.ids[:3], skip_special_tokens=True) == "x"
    assert model.tokens_without_embedding == []
    assert model.vocabulary is None  # whose pieces alone would split texts in another way


@pytest.mark.parametrize("content", [{"post_processor": "special_tokens"}, {"model": "type"}])
def test_a_damaged_tokenizer_file_is_named(directory: Path, content: dict[str, str]) -> None:
    spec = json.loads(open_model(directory).tokenizer.to_str())
    for part, name in content.items():
        spec[part][name] = {}
    (directory / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read: ") as caught:
        open_model(directory)
    assert "\n" not in str(caught.value)


def test_a_position_table_without_rows_is_named(tmp_path: Path) -> None:
    name = "bert.embeddings.position_embeddings.weight"
    for number, shape in enumerate(((), (3,), (2, 3, 4))):
        weights = {**stored_weights(), name: np.zeros(shape, np.float32)}
        with pytest.raises(UserError, match=rf"{name} is \[.*\] instead of \[20, 16\]"):
            open_model(write_huggingface(tmp_path / str(number), weights))


def test_special_tokens_in_another_form_are_refused(directory: Path) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps({"cls_token": {"content": 1}}))
    with pytest.raises(UserError, match=r"tokenizer_config\.json names special tokens in another form"):
        open_model(directory)


def test_the_settings_of_bert_tokenizer_overrule_its_file(directory: Path) -> None:
    open_model(directory).tokenizer.save(str(directory / "tokenizer.json"))  # which lower-cases
    for name, piece in (("BertTokenizer", "[UNK]"), ("BertTokenizerFast", "[UNK]"), ("Other", "a")):
        settings = {"tokenizer_class": name, "do_lower_case": False}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        assert open_model(directory).tokenizer.encode("A").tokens[1] == piece
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert open_model(directory).tokenizer.encode("A").tokens[1] == "a"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", {"tokenizer_class": "BertJapaneseTokenizer"}, "names the tokenizer BertJapanese"),
        ("tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"}, "names the tokenizer Roberta"),
        ("tokenizer_config.json", {"strip_accents": "no"}, "has the strip_accents 'no'; it must be true or"),
    ],
)
def test_a_vocabulary_of_another_tokenizer_is_refused(
    directory: Path, file: str, content: dict, message: str
) -> None:
    before = json.loads((directory / file).read_text()) if (directory / file).exists() else {}
    (directory / file).write_text(json.dumps(before | content))
    with pytest.raises(UserError, match=message):
        open_model(directory)


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, ["ä", "[UNK]"]),
        ({"strip_accents": True}, ["a", "[UNK]"]),
        ({"tokenize_chinese_chars": True}, ["ä", "a", "北", "a"]),
        ({"do_lower_case": True}, ["a", "a", "北", "a"]),  # the other settings take transformers' defaults
        ({"do_lower_case": True, "strip_accents": False}, ["ä", "a", "北", "a"]),
    ],
)
def test_settings_beside_a_tokenizer_file_overrule_it_one_by_one(
    tmp_path: Path, settings: dict, tokens: list[str]
) -> None:
    directory = write_accented(tmp_path / "hf")
    tokenizer = open_model(directory).tokenizer
    rules = {"lowercase": True, "strip_accents": False, "handle_chinese_chars": False}
    tokenizer.normalizer = normalizers.BertNormalizer(**rules)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", **settings})
    )
    assert open_model(directory).tokenizer.encode("Ä a北a").tokens[1:-1] == tokens


@pytest.mark.parametrize("name", ["BertTokenizer", None, "PreTrainedTokenizerFast"])
def test_a_tokenizer_file_of_berts_class_gets_its_special_tokens(directory: Path, name: str | None) -> None:
    spec = json.loads(open_model(directory).tokenizer.to_str())
    (directory / "tokenizer.json").write_text(json.dumps({**spec, "post_processor": None}))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name} if name else {}))
    encoding = open_model(directory).tokenizer.encode("a", "b")
    if name == "PreTrainedTokenizerFast":
        assert encoding.tokens == ["a", "b"]
    else:
        assert encoding.tokens == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
        assert encoding.type_ids == [0, 0, 0, 1, 1]


BERT_PROCESSING = {"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"max_input_chars_per_word": 5}},
        {"model": {"continuing_subword_prefix": "@@"}},
        {"model": {"unk_token": "[MASK]"}},
        {"post_processor": {"single": [{"Sequence": {"id": "A", "type_id": 0}}]}},
        {"post_processor": {**BERT_PROCESSING["post_processor"], "sep": ["[MASK]", 4]}},
        BERT_PROCESSING,
        {},
    ],
)
def test_a_wordpiece_with_rules_of_its_own_is_exported_as_it_is(
    tmp_path: Path, directory: Path, changes: dict
) -> None:
    spec = json.loads(open_model(directory).tokenizer.to_str())
    for part, values in changes.items():
        spec[part] = values if "cls" in values else spec[part] | values
    (directory / "tokenizer.json").write_text(json.dumps(spec))
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    is_plain = changes in ({}, BERT_PROCESSING)
    assert (open_model(directory).vocabulary is not None) is is_plain
    convert(directory, tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == ("BertTokenizer" if is_plain else "PreTrainedTokenizerFast")
    for text in ("abcdef a", "a1 b"):
        ids = open_model(directory).tokenizer.encode(text).ids
        assert open_model(tmp_path / "out").tokenizer.encode(text).ids == ids


def test_a_tokenizer_that_pads_and_cuts_does_so_no_more(directory: Path) -> None:
    tokenizer = open_model(directory).tokenizer
    tokenizer.enable_padding(length=12)
    tokenizer.enable_truncation(12)
    tokenizer.save(str(directory / "tokenizer.json"))
    tokenizer = open_model(directory).tokenizer
    assert [len(tokenizer.encode("a " * n)) for n in (1, 14)] == [3, 16]


def test_the_vocabulary_is_found_in_a_tokenizer_file_alone(tmp_path: Path, directory: Path) -> None:
    content = (directory / "vocab.txt").read_bytes()
    tokenizer = open_model(directory).tokenizer
    (directory / "vocab.txt").unlink()
    for uncased, casing in ((True, "uncased"), (False, "cased")):
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=uncased)
        tokenizer.save(str(directory / "tokenizer.json"))
        assert open_model(directory).vocabulary == Vocabulary("wordpiece", casing, content)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.save(str(directory / "tokenizer.json"))
    assert open_model(directory).vocabulary is None
    convert(directory, tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
