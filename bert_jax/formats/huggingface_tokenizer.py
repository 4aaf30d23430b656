"""A model's tokenizer as Hugging Face reads it: the same ids, in files that `AutoTokenizer` loads.

For WordPiece their tokenizer is used as it is. A SentencePiece model is rebuilt from its pieces,
scores and normalisation table, so that whoever loads the `tokenizer.json` needs no SentencePiece.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from bert_jax.formats.huggingface_added_tokens import (
    SETTINGS_FILE,
    SPECIAL_FILE,
    add_listed_tokens,
    add_named_tokens,
    added_contents,
    read_if_present,
)
from bert_jax.model_config import ModelConfig
from data_pipeline.corpus.byte_bpe import make_byte_bpe
from data_pipeline.corpus.special_tokens import special_tokens
from data_pipeline.corpus.tokenizer_json import as_vocabulary, find_fault, load_tokenizer_json
from data_pipeline.corpus.tokenizer_rules import find_difference, found_casing
from data_pipeline.corpus.vocabulary_file import (
    CLS,
    FILES,
    MASK,
    SEP,
    SPECIAL_TOKENS,
    TOKENIZER_DIRECTORY,
    Vocabulary,
    guess_casing,
    sentencepiece_fault,
)
from data_pipeline.corpus.wordpiece import make_wordpiece
from data_pipeline.errors import UserError

TOKENIZER_FILE = "tokenizer.json"
# Classes accepted for a directory with only a vocab.txt. Others split text differently: BertJapaneseTokenizer
# uses MeCab, for example.
_CLASSES = tuple(
    f"{family}Tokenizer{suffix}" for family in ("Bert", "DistilBert", "Electra") for suffix in ("", "Fast")
)
# Their defaults for settings that no file gives; None means the same as do_lower_case.
_UNTOLD: dict[str, bool | None] = {"strip_accents": None, "tokenize_chinese_chars": True}


def make_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Makes the tokenizer of a vocabulary, with BERT's special tokens.

    It recognises special tokens in text, as Hugging Face's do: "[MASK]" becomes one id.

    Raises:
      UserError: a special token is missing, or the vocabulary is a SentencePiece model that cannot be
        rebuilt.
    """
    if vocabulary.kind == "wordpiece":
        pieces = vocabulary.pieces(f"the model's {vocabulary.file_name}")
        tokenizer = make_wordpiece(pieces, vocabulary.casing)
    elif vocabulary.kind == "byte_bpe":
        tokenizer = make_byte_bpe(vocabulary.content)
    else:
        tokenizer = _sentencepiece(vocabulary)
    for token in SPECIAL_TOKENS:
        special_id(tokenizer, token)
    tokenizer.add_special_tokens(
        [
            # In byte-level BPE the blank before a masked word is a part of it, so [MASK] takes it along.
            AddedToken(
                token,
                special=True,
                normalized=False,
                lstrip=vocabulary.kind == "byte_bpe" and token == MASK,
            )
            for token in SPECIAL_TOKENS
        ]
    )
    tokenizer.post_processor = _bert_template(tokenizer)
    return tokenizer


def read_tokenizer(directory: Path) -> tuple[Tokenizer, Vocabulary | None]:
    """Reads the tokenizer in a Hugging Face directory: `tokenizer.json`, or else `vocab.txt` and its
    settings.

    As in transformers, tokens that were added to a `vocab.txt` are recognised in text, and so are those of
    the vocabulary that the files beside it name as special. BertTokenizer's settings override the casing in
    its `tokenizer.json`.

    Returns:
      The tokenizer, which neither truncates nor pads, and its vocabulary. The vocabulary is None if the
      tokenizer is neither plain BERT WordPiece nor byte-level BPE and no SentencePiece model lies beside it.

    Raises:
      UserError: there is no tokenizer, it is damaged, or there is no `tokenizer.json` and it is not BERT's;
        an added token's id is not the next free one.
    """
    if (directory / TOKENIZER_FILE).is_file():
        tokenizer = load_tokenizer_json(directory / TOKENIZER_FILE)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        add_named_tokens(directory, tokenizer)
        _follow_settings(directory, tokenizer)
        return tokenizer, _find_vocabulary(directory, tokenizer)
    file = directory / FILES["wordpiece"]
    if not file.is_file():
        inside = directory / TOKENIZER_DIRECTORY
        hint = f"; {inside} has one" if (inside / file.name).is_file() else ""
        raise UserError(f"{directory} has no tokenizer; looked for {TOKENIZER_FILE} and {file.name}{hint}")
    content = file.read_bytes()
    rules: dict[str, Any] = {
        "do_lower_case": guess_casing(content, file) == "uncased",
        **_UNTOLD,
        **_read_settings(directory),
    }
    vocabulary = Vocabulary("wordpiece", "uncased" if rules["do_lower_case"] else "cased", content)
    tokenizer = make_tokenizer(vocabulary)
    tokenizer.normalizer = _bert_normalizer(rules)
    add_listed_tokens(directory, tokenizer)
    add_named_tokens(directory, tokenizer)
    is_plain = find_difference(tokenizer, make_wordpiece((), vocabulary.casing)) is None
    return tokenizer, vocabulary if is_plain and _has_berts_tokens_alone(tokenizer) else None


def write_tokenizer(
    directory: Path, tokenizer: Tokenizer, vocabulary: Vocabulary | None, model: ModelConfig
) -> None:
    """Writes the tokenizer files of a Hugging Face model.

    Args:
      directory: an existing directory.
      tokenizer: saved to `tokenizer.json` unchanged.
      vocabulary: saved beside it as its own file, unless None.
      model: the encoder that reads what the tokenizer gives.
    """
    tokenizer.save(str(directory / TOKENIZER_FILE))
    special = special_tokens(tokenizer)
    tokens = dict(zip(("pad", "unk", "cls", "sep", "mask"), special.names, strict=True))
    known = {f"{n}_token": token for n, token in tokens.items() if tokenizer.token_to_id(token) is not None}
    longest = {"model_max_length": model.max_position_embeddings}
    # A pair of texts has the segments 0 and that of the second text.
    has_segments = special.second_segment < model.type_vocab_size
    config = {**_class_settings(vocabulary, has_segments), **known, **longest}
    for name, content in ((SETTINGS_FILE, config), (SPECIAL_FILE, known)):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if vocabulary and vocabulary.file_name != TOKENIZER_FILE:
        (directory / vocabulary.file_name).write_bytes(vocabulary.content)


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token. Raises UserError if the vocabulary lacks it."""
    index = tokenizer.token_to_id(token)
    if index is None:
        raise UserError(f"the model's vocabulary has no {token}; BERT needs {', '.join(SPECIAL_TOKENS)}")
    return index


def _class_settings(vocabulary: Vocabulary | None, has_segments: bool) -> dict[str, Any]:
    """The tokenizer's class and its settings.

    Args:
      vocabulary: None if the tokenizer has no file of its own.
      has_segments: whether the model takes the segments of a pair of texts.
    """
    names = ["input_ids", "token_type_ids", "attention_mask"]
    inputs = {"model_input_names": [name for name in names if has_segments or name != "token_type_ids"]}
    if vocabulary is None or vocabulary.kind != "wordpiece":
        return {"tokenizer_class": "PreTrainedTokenizerFast", **inputs}
    uncased = vocabulary.casing == "uncased"
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": uncased,
        "strip_accents": uncased,
        "tokenize_chinese_chars": True,
        **({} if has_segments else inputs),
    }


def _follow_settings(directory: Path, tokenizer: Tokenizer) -> None:
    """Makes a tokenizer from `tokenizer.json` follow `tokenizer_config.json`, as transformers does.

    If that file names BertTokenizer or no class, transformers rebuilds the normalizer from its settings and
    adds [CLS] and [SEP]. Settings that the file lacks take BertTokenizer's defaults if it has do_lower_case,
    and otherwise stay as they are in `tokenizer.json`.
    """
    file = directory / SETTINGS_FILE
    told = read_if_present(file)
    if told.get("tokenizer_class") not in (None, *_CLASSES):
        return
    bare = tokenizer.encode("").tokens != [CLS, SEP]
    if bare and all(tokenizer.token_to_id(token) is not None for token in (CLS, SEP)):
        tokenizer.post_processor = _bert_template(tokenizer)
    rules = json.loads(tokenizer.to_str())["normalizer"] or {}
    if rules.get("type") != "BertNormalizer":
        return
    settings = _check_settings(file, told)
    untold = {
        "do_lower_case": rules["lowercase"],
        "strip_accents": rules["strip_accents"],
        "tokenize_chinese_chars": rules["handle_chinese_chars"],
    }
    if "do_lower_case" in settings:
        untold = _UNTOLD
    tokenizer.normalizer = _bert_normalizer({**untold, **settings}, rules["clean_text"])


def _bert_normalizer(settings: Mapping[str, Any], clean_text: bool = True) -> normalizers.BertNormalizer:
    """The normalizer that BertTokenizer makes from its three settings."""
    return normalizers.BertNormalizer(
        clean_text=clean_text,
        lowercase=settings["do_lower_case"],
        strip_accents=settings["strip_accents"],
        handle_chinese_chars=settings["tokenize_chinese_chars"],
    )


def _read_settings(directory: Path) -> dict[str, bool]:
    """The settings for a `vocab.txt` that `tokenizer_config.json` gives; empty if there is no such file.

    Raises:
      UserError: the tokenizer's class is not BERT's, or a setting is neither true nor false.
    """
    told = {}
    # Older models name the class only in config.json.
    for file in (directory / "config.json", directory / SETTINGS_FILE):
        told = read_if_present(file)
        name = told.get("tokenizer_class")
        if name is not None and name not in _CLASSES:
            raise UserError(
                f"{file} names the tokenizer {name}; without {TOKENIZER_FILE} it must be one of "
                f"{', '.join(_CLASSES)}"
            )
    return _check_settings(directory / SETTINGS_FILE, told)


def _check_settings(file: Path, told: dict[str, Any]) -> dict[str, bool]:
    names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
    settings = {name: told[name] for name in names if told.get(name) is not None}
    for name, value in settings.items():
        if not isinstance(value, bool):
            raise UserError(f"{file} has the {name} {value!r}; it must be true or false")
    return settings


def _find_vocabulary(directory: Path, tokenizer: Tokenizer) -> Vocabulary | None:
    casing = found_casing(tokenizer)
    file = directory / FILES["sentencepiece"]
    if file.is_file():
        return Vocabulary("sentencepiece", casing, file.read_bytes())
    if find_fault(tokenizer) is not None:
        return None
    vocabulary = as_vocabulary(tokenizer)
    return vocabulary if vocabulary.kind == "byte_bpe" or _has_berts_tokens_alone(tokenizer) else None


def _bert_template(tokenizer: Tokenizer) -> processors.TemplateProcessing:
    """The post-processor that puts [CLS] and [SEP] around a text or a pair.

    Raises:
      UserError: the vocabulary lacks them.
    """
    return processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, special_id(tokenizer, token)) for token in (CLS, SEP)],
    )


def _has_berts_tokens_alone(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer recognises and adds no other tokens than BERT's, around a text as BERT's does."""
    if not added_contents(tokenizer) <= {*SPECIAL_TOKENS}:
        return False
    if any(tokenizer.token_to_id(token) is None for token in (CLS, SEP)):
        return False
    same: list[Any] = [_bert_template(tokenizer)]
    same.append(processors.BertProcessing(*((t, special_id(tokenizer, t)) for t in (SEP, CLS))))
    found = json.loads(tokenizer.to_str())["post_processor"]
    return any(found == json.loads(processor.__getstate__()) for processor in same)


def _sentencepiece(vocabulary: Vocabulary) -> Tokenizer:
    """Rebuilds a unigram model's tokenizer from the pieces and settings in SentencePiece's own format."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.content)  # type: ignore[attr-defined]
    trained, rules = model.trainer_spec, model.normalizer_spec
    if fault := sentencepiece_fault(model):
        raise UserError(f"the model's vocabulary {fault}")
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    tokenizer = Tokenizer(models.Unigram(pieces, trained.unk_id, trained.byte_fallback))
    steps: list[Any] = []
    if rules.precompiled_charsmap:
        if "nfkc" in rules.name:
            # Unlike SentencePiece, Precompiled composes only letters of few bytes with one accent each.
            steps.append(normalizers.NFC())
        steps.append(normalizers.Precompiled(rules.precompiled_charsmap))
    # Leading spaces stay: after [MASK], a space tells a new word from the rest of the masked one.
    steps += [normalizers.Replace(Regex(" +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer
