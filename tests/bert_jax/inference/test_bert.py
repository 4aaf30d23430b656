"""Applying a model to texts: padding, other texts and their order do not change the numbers."""

import dataclasses
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax.formats.huggingface_tokenizer import make_tokenizer
from bert_jax.inference.bert import Bert, Encoded, _forward, tokenize
from bert_jax.inference.fill_mask import _masked_logits
from bert_jax.model.encoder import Encoder
from data_pipeline.corpus.truncation import truncated_lengths
from data_pipeline.corpus.vocabulary_file import read_vocabulary
from data_pipeline.errors import UserError
from tests.bert_jax.formats.foreign_directories import PIECES, stored_weights, write_huggingface
from tests.bert_jax.small_run import make_tokenizer as make_text_tokenizer

EVERYTHING = ("pooled_output", "sequence_output", "embedding_output", "hidden_states", "attention_maps")
TEXTS = ["a b c", ("d e f g", "h i"), "", "x " * 15, "k"]
LAYERS, HEADS, WIDTH = 2, 4, 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Bert:
    return bert_jax.load_model(
        write_huggingface(tmp_path_factory.mktemp("inference") / "hf", stored_weights())
    )


@pytest.fixture(scope="module")
def encoded(model: Bert) -> Encoded:
    return model.encode(TEXTS, EVERYTHING)


def test_shapes_and_order(encoded: Encoded) -> None:
    lengths = [5, 9, 2, 17, 3]
    assert [len(tokens) for tokens in encoded.tokens] == lengths
    assert encoded.tokens[0] == ["[CLS]", "a", "b", "c", "[SEP]"]
    assert encoded.pooled_output.shape == (5, WIDTH)
    assert [x.shape for x in encoded.sequence_output] == [(n, WIDTH) for n in lengths]
    assert [x.shape for x in encoded.embedding_output] == [(n, WIDTH) for n in lengths]
    assert [x.shape for x in encoded.hidden_states] == [(LAYERS + 1, n, WIDTH) for n in lengths]
    assert [x.shape for x in encoded.attention_maps] == [(LAYERS, HEADS, n, n) for n in lengths]
    for i in range(5):
        np.testing.assert_array_equal(encoded.hidden_states[i][-1], encoded.sequence_output[i])
        np.testing.assert_array_equal(encoded.hidden_states[i][0], encoded.embedding_output[i])
        np.testing.assert_allclose(encoded.attention_maps[i].sum(-1), 1, atol=1e-5)


def test_a_text_gives_the_same_alone_and_among_others(model: Bert, encoded: Encoded) -> None:
    for i, text in enumerate(TEXTS):
        alone = model.encode([text], EVERYTHING)
        for name in EVERYTHING:
            np.testing.assert_allclose(
                getattr(alone, name)[0], getattr(encoded, name)[i], atol=1e-5, err_msg=f"{name} of {text!r}"
            )


def test_a_pair_is_two_segments(model: Bert, encoded: Encoded) -> None:
    tokens, pretrained = encoded.tokens[1], model.pretrained
    assert tokens == ["[CLS]", "d", "e", "f", "g", "[SEP]", "h", "i", "[SEP]"]
    ids = np.array([[pretrained.tokenizer.token_to_id(token) for token in tokens]])
    segments = np.array([[0] * 6 + [1] * 3])
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": segments}
    last = Encoder(pretrained.config).apply({"params": pretrained.params["encoder"]}, batch, True)
    np.testing.assert_allclose(encoded.sequence_output[1], last[0], atol=1e-5)


def test_only_what_is_asked_for(model: Bert) -> None:
    encoded = model.encode(TEXTS[:2], ["hidden_states"], layers=np.array([-1, 0]))
    assert encoded.sequence_output is None
    assert encoded.pooled_output is None
    every = model.encode(TEXTS[:2], ["hidden_states"])
    for some, all_layers in zip(encoded.hidden_states, every.hidden_states, strict=True):
        np.testing.assert_allclose(some, all_layers[[-1, 0]], atol=1e-5)
    assert model.encode(TEXTS).pooled_output.shape == (5, WIDTH)
    assert model.encode([]).pooled_output.shape == (0, WIDTH)


def test_many_texts_compile_few_programs(model: Bert) -> None:
    _forward.clear_cache()
    texts = ["a " * (i % 18) for i in range(300)]
    found = model.encode(texts, ["embedding_output"])
    assert [len(x) for x in found.embedding_output] == [i % 18 + 2 for i in range(300)]
    assert _forward._cache_size() == 3  # 64 rows of length 16; 16 and 8 rows of length 20


def test_long_texts_are_cut_and_counted(model: Bert) -> None:
    with pytest.warns(UserWarning, match="2 of 3 texts were cut to 20 tokens"):
        encoded = model.encode(["a " * 19, ("b " * 30, "c"), "d"])
    assert encoded.cut == 2
    assert encoded.tokens[0] == ["[CLS]", *["a"] * 18, "[SEP]"]
    assert encoded.tokens[1] == ["[CLS]", *["b"] * 16, "[SEP]", "c", "[SEP]"]


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "byte_bpe"])
def test_long_pairs_are_cut_as_in_pretraining(kind: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    make_text_tokenizer(kind, "uncased").save(tmp_path)
    whole, cutting = (make_tokenizer(read_vocabulary(tmp_path)) for _ in range(2))
    ties = 0
    for longest in (8, 9):
        cutting.enable_truncation(longest)
        for _ in range(300):
            sizes = [(draw.choice([0, 1, 2, 9, 10]), draw.randint(0, 3)) for _ in range(2)]
            pair = tuple("the cat, naïve " * many + "a " * few for many, few in sizes)
            (ours,), cut = tokenize(whole, [pair], longest)
            theirs = cutting.encode(*pair)
            assert (len(ours), cut) == (len(theirs), bool(theirs.overflowing))
            tokens = [whole.encode(text, add_special_tokens=False).tokens for text in pair]
            kept = truncated_lengths(*map(len, tokens), longest - whole.num_special_tokens_to_add(True))
            added = ours.special_tokens_mask
            plain = [token for token, special in zip(ours.tokens, added, strict=True) if not special]
            assert plain == [*tokens[0][: kept[0]], *tokens[1][: kept[1]]]
            # Of equal texts `tokenizers` cuts the first one shorter.
            if ours.ids == theirs.ids:
                assert ours.type_ids == theirs.type_ids
            else:
                ties += 1
    assert 0 < ties < 150


def test_bad_requests_are_refused(model: Bert) -> None:
    for request, message in (
        (lambda: model.encode("a text"), "takes a list of texts"),
        (lambda: model.encode(["a"], ["pooled"]), "unknown output 'pooled'; valid: pooled_output, sequence"),
        (lambda: model.encode(["a"], ["hidden_states"], [3]), "no layer 3; valid: -3 to 2"),
        (lambda: model.encode(["a"], ["hidden_states"], []), "layers is empty; give some of -3 to 2"),
        (lambda: model.fill_mask("a"), r"no \[MASK\]"),
    ):
        with pytest.raises(UserError, match=message):
            request()
    encoder = dataclasses.replace(model.pretrained, params={"encoder": model.pretrained.params["encoder"]})
    with pytest.raises(UserError, match="has no pooler head, which the pooled output needs"):
        Bert(encoder).encode(["a"], ["pooled_output"])
    assert Bert(encoder).encode(["a"]).pooled_output is None


def test_masks_are_filled(model: Bert) -> None:
    (((token, share), *_),) = model.fill_mask("a [MASK] b", top_k=3)
    assert token in PIECES
    assert 0 < share < 1


def test_masks_of_texts_of_many_lengths_need_few_programs(model: Bert) -> None:
    _masked_logits.clear_cache()
    alone = dict(model.fill_mask("[MASK] a b", top_k=20)[0])
    for text in ("[MASK]", "[MASK] a", "[MASK] a b c d"):
        model.fill_mask(text)
    model.fill_mask("[MASK] a [MASK] b [MASK]")
    model.fill_mask("[MASK] a [MASK] b [MASK] c [MASK]")
    assert _masked_logits._cache_size() == 2  # one for one mask, one for up to four
    longer = dict(model.fill_mask("[MASK] a b" + " x" * 13, top_k=20)[0])
    assert longer != alone
    assert _masked_logits._cache_size() == 3


def test_importing_the_package_is_cheap() -> None:
    program = "import sys, bert_jax; bert_jax.load_model; print({'jax', 'numpy', 'flax'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
