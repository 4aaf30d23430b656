"""The added and special tokens that the files of a Hugging Face directory name beside its vocabulary."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from data_pipeline.corpus.vocabulary_file import FILES, SPECIAL_TOKENS
from data_pipeline.errors import UserError
from data_pipeline.json_text import read_object

SETTINGS_FILE = "tokenizer_config.json"
SPECIAL_FILE = "special_tokens_map.json"
_ADDED_FILE = "added_tokens.json"


def add_listed_tokens(directory: Path, tokenizer: Tokenizer) -> None:
    """Adds the tokens that the files beside a `vocab.txt` list with their ids.

    Raises:
      UserError: the files are damaged, or a token's id is not the next free one.
    """
    added = {index: token for index, token in _read_added(directory) if token.content not in SPECIAL_TOKENS}
    for index, token in sorted(added.items(), key=lambda item: item[0]):
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        found = tokenizer.token_to_id(token.content)
        if found != index:
            raise UserError(
                f"{directory} has the added token {token.content!r} with id {index}; after its "
                f"{FILES['wordpiece']} and the tokens before it, it would get {found}"
            )


def add_named_tokens(directory: Path, tokenizer: Tokenizer) -> None:
    """Makes the tokenizer recognise in text the special tokens that the files beside it name.

    Those that the vocabulary lacks are left out: the model has learned no embedding for them.

    Raises:
      UserError: the files are damaged.
    """
    known = added_contents(tokenizer)
    named = (token for token in _read_named(directory) if token.content not in known)
    tokenizer.add_special_tokens([one for one in named if tokenizer.token_to_id(one.content) is not None])


def added_contents(tokenizer: Tokenizer) -> set[str]:
    """The texts of the tokens that are recognised before a text is split."""
    return {token.content for token in tokenizer.get_added_tokens_decoder().values()}


def read_if_present(file: Path) -> dict[str, Any]:
    """The content of a JSON file; empty if there is no such file."""
    return read_object(file) if file.is_file() else {}


def _read_named(directory: Path) -> list[AddedToken]:
    """The special tokens under keys such as cls_token and additional_special_tokens; files that transformers
    wrote since its version 5 have them in `tokenizer_config.json` alone."""
    named = []
    for file in (directory / SETTINGS_FILE, directory / SPECIAL_FILE):
        told = read_if_present(file)
        values = [value for name, value in told.items() if name.endswith(("_token", "_tokens"))]
        try:
            named += [_added_token(**{**fields, "special": True}) for fields in _tokens_in(values)]
        except TypeError:
            raise UserError(f"{file} names special tokens in another form than transformers writes") from None
    return named


def _tokens_in(value: Any) -> list[dict[str, Any]]:
    """The fields of the tokens in a value: one, or several in a list or by names. Flags such as add_bos_token
    have none."""
    if isinstance(value, str):
        return [{"content": value}]
    if isinstance(value, dict):
        return [value] if "content" in value else _tokens_in(list(value.values()))
    return [fields for item in value for fields in _tokens_in(item)] if isinstance(value, list) else []


def _read_added(directory: Path) -> list[tuple[int, AddedToken]]:
    """Ids and tokens that `tokenizer_config.json` lists, or else those of the older `added_tokens.json`."""
    settings, older = (read_if_present(directory / name) for name in (SETTINGS_FILE, _ADDED_FILE))
    file = directory / (SETTINGS_FILE if "added_tokens_decoder" in settings else _ADDED_FILE)
    try:
        if "added_tokens_decoder" in settings:
            listed = settings["added_tokens_decoder"].items()
            return [(int(index), _added_token(**fields)) for index, fields in listed]
        specials = {token.content for token in _read_named(directory)}
        return [
            (int(index), AddedToken(content, special=content in specials, normalized=content not in specials))
            for content, index in older.items()
        ]
    except UserError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"{file} lists added tokens in another form than transformers writes") from None


def _added_token(content: str, special: bool = False, **flags: Any) -> AddedToken:
    names = ("single_word", "lstrip", "rstrip", "normalized")
    known = {"normalized": not special, **{name: flags[name] for name in names if name in flags}}
    return AddedToken(content, special=special, **known)
