"""A run's tokenizer as Hugging Face reads it: the same ids, in files that `AutoTokenizer` loads.

WordPiece is theirs anyway. A SentencePiece model is rebuilt from its pieces, scores and
normalisation table, since a `tokenizer.json` needs no SentencePiece where it is used.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from data_pipeline.errors import UserError

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILE = "tokenizer.json"

_WORDPIECE_FILE = "vocab.txt"
_SENTENCEPIECE_FILE = "spiece.model"
_SETTINGS_FILE = "settings.json"


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer in the `tokenizer` folder of a prepared corpus, with BERT's special tokens.

    It knows special tokens in text, as Hugging Face's do: "[MASK]" is one id.

    Raises:
      UserError: the folder holds no tokenizer, or a SentencePiece model other than unigram.
    """
    kind, casing = _read_settings(directory)
    if kind == "wordpiece":
        tokenizer = _wordpiece(directory / _WORDPIECE_FILE, casing)
    else:
        tokenizer = _sentencepiece(directory / _SENTENCEPIECE_FILE)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, special_id(tokenizer, token)) for token in (CLS, SEP)],
    )
    return tokenizer


def write_tokenizer(source: Path, output: Path, longest: int) -> Tokenizer:
    """Writes the tokenizer files of a Hugging Face model and returns the tokenizer.

    Args:
      source: the `tokenizer` folder of a prepared corpus.
      output: an existing folder.
      longest: the model's number of positions.
    """
    tokenizer = read_tokenizer(source)
    tokenizer.save(str(output / TOKENIZER_FILE))
    names = {"pad_token": PAD, "unk_token": UNK, "cls_token": CLS, "sep_token": SEP, "mask_token": MASK}
    config = {**_class_settings(source), **names, "model_max_length": longest}
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", names)):
        (output / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for name in (_WORDPIECE_FILE, _SENTENCEPIECE_FILE):
        if (source / name).exists():
            shutil.copyfile(source / name, output / name)
    return tokenizer


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token. Raises UserError if the vocabulary lacks it."""
    index = tokenizer.token_to_id(token)
    if index is None:
        raise UserError(f"the model's vocabulary has no {token}; BERT needs {', '.join(SPECIAL_TOKENS)}")
    return index


def _read_settings(directory: Path) -> tuple[str, str]:
    """(kind, casing) of the tokenizer in a folder."""
    try:
        settings = json.loads((directory / _SETTINGS_FILE).read_text(encoding="utf-8"))
        return settings["kind"], settings["casing"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{directory} holds no tokenizer; `bert-jax prepare` writes one") from None


def _class_settings(source: Path) -> dict[str, Any]:
    kind, casing = _read_settings(source)
    uncased = casing == "uncased"
    if kind == "wordpiece":
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": uncased,
            "strip_accents": uncased,
            "tokenize_chinese_chars": True,
        }
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}


def _wordpiece(file: Path, casing: str) -> Tokenizer:
    # Not splitlines: it also splits at characters such as U+2028 that vocabularies hold.
    text = file.read_text(encoding="utf-8-sig").removesuffix("\n")
    ids = {token: index for index, token in enumerate(text.split("\n"))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=100))
    uncased = casing == "uncased"
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=uncased, strip_accents=uncased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _sentencepiece(file: Path) -> Tokenizer:
    """A unigram model's pieces and settings, read from SentencePiece's own message format."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(file.read_bytes())  # type: ignore[attr-defined]
    trained, rules = model.trainer_spec, model.normalizer_spec
    if trained.model_type != trained.UNIGRAM:
        raise UserError(f"{file} is not a unigram SentencePiece model; only unigram ones can be exported")
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    tokenizer = Tokenizer(models.Unigram(pieces, trained.unk_id, trained.byte_fallback))
    steps: list[Any] = []
    if rules.precompiled_charsmap:
        steps.append(normalizers.Precompiled(rules.precompiled_charsmap))
    if rules.remove_extra_whitespaces:
        # Blanks in front stay: after [MASK] one blank tells a new word from the rest of one.
        steps += [normalizers.Replace(Regex(" +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    prepend = "first" if rules.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=prepend)
    return tokenizer
