"""Settings of encoders that between them have every named part, for tests that hold for all of them.

Tests that need no others run for each; `test_parts.py` checks that no name is missing. `CASES` joins them
with the objectives, `MODES_OF_CASES` these with ways of using devices.
"""

from typing import Any

from bert_jax.objectives import OBJECTIVES

ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {},
    # ModernBERT (arXiv 2412.13663)
    "modern": {
        "type_vocab_size": 0,
        "positions": "rotary",
        "rotary_base": 160_000.0,
        "rotary_base_local": 100.0,
        "normalization_place": "pre",
        "feed_forward": "geglu",
        "activation": "gelu_exact",
        "biases": "none",
        "attention_window": 2,
        "global_every": 2,
    },
    # EuroBERT (arXiv 2503.05500), with normalized queries and keys
    "euro": {
        "positions": "rotary",
        "normalization": "rms_norm",
        "normalization_place": "pre",
        "embedding_normalization": "none",
        "query_key_normalization": "same",
        "feed_forward": "swiglu",
        "activation": "silu",
    },
    # The encoder of Vaswani et al. 2017, in a window
    "transformer": {
        "positions": "sinusoidal",
        "activation": "relu",
        "biases": "norms",
        "attention_window": 3,
    },
    # ALBERT (arXiv 1909.11942)
    "albert": {"embedding_size": 8, "layer_groups": 1},
    # The same with normalization before sublayers, where the first layer's own cannot be left out
    "albert_pre": {"embedding_size": 8, "layer_groups": 1, "normalization_place": "pre"},
    # LTG-BERT's normalization (arXiv 2303.09859), with nothing that tells of order
    "unordered": {
        "positions": "none",
        "normalization_place": "normformer",
        "query_key_normalization": "same",
    },
}

CASES: tuple[tuple[str, str], ...] = (
    *(("mlm_nsp", encoder) for encoder in ENCODERS),
    *((objective, "bert") for objective in OBJECTIVES if objective != "mlm_nsp"),
    ("ltr", "modern"),
    ("rtd", "albert_pre"),
)
"""Objectives and encoders: each of both at least once, and those together that concern each other."""

MODES_OF_CASES: tuple[tuple[str, str, str], ...] = tuple(
    (mode, *case)
    for mode in ("one_device", "pmap", "tensor_accumulated")
    for case in CASES
    if mode != "pmap" or case[1] == "bert"
)
"""Modes of `eight_devices`, objectives and encoders. Each of pmap's devices holds the whole encoder, as one
device does; there the objectives alone matter."""

RESUMED_CASES: tuple[tuple[str, str, str], ...] = tuple(
    case for case in MODES_OF_CASES if case[0] == "tensor_accumulated" or case[1:] == ("mlm_nsp", "bert")
)
"""Those of `MODES_OF_CASES` that are resumed from a checkpoint: all in the mode that spreads each array in
most ways, and one in each of the others, where arrays are saved alike whatever is learnt."""
