"""ModernBERT (transformers/models/modernbert/modeling_modernbert.py).

Queries, keys and values are one matrix, gate and value of the feed-forward layer another. The transform of
the language model head stands in front of every output layer of fine-tuning too, under the same name.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.formats.families.family import ACTIVATIONS, Family, TaskClass, same_classes
from bert_jax.formats.tensors import Rows
from bert_jax.model_config import MODEL_SIZES, Biases, ModelConfig
from data_pipeline.checks import check_above_zero, check_positive
from data_pipeline.errors import UserError

_BIASES: Mapping[Biases, tuple[bool, bool]] = {
    "none": (False, False),
    "norms": (False, True),
    "all": (True, True),
}
"""Our name -> whether linear layers and whether normalizations have biases."""
_LINEAR_BIASES = ("attention_bias", "mlp_bias", "classifier_bias")
_BASES = {
    "full_attention": ("global_rope_theta", 160_000.0),
    "sliding_attention": ("local_rope_theta", 10_000.0),
}
"""Kind of layer -> the older field of its rotary base, and the default."""


def _layer_types(every: int | None, num_layers: int) -> list[str]:
    return ["full_attention" if every and i % every == 0 else "sliding_attention" for i in range(num_layers)]


def _windows(fields: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """`attention_window` and `global_every`."""
    count, every = fields["num_hidden_layers"], fields["global_attn_every_n_layers"]
    check_positive("global_attn_every_n_layers", every)
    check_positive("num_hidden_layers", count, MODEL_SIZES["num_layers"])
    kinds = fields.get("layer_types") or _layer_types(every, count)
    found = [n for n in (1, every, None, *range(2, count)) if _layer_types(n, count) == kinds]
    if not found:
        raise UserError(
            "layer_types must be the first of every so many full_attention, others sliding_attention"
        )
    if found[0] == 1:
        return None, None
    return fields["local_attention"] // 2, found[0]


def _rotary_bases(fields: Mapping[str, Any]) -> list[float]:
    bases = []
    for kind, (older, default) in _BASES.items():
        of_kinds = fields.get("rope_parameters") or {}
        told = (of_kinds.get(kind) or {}) if isinstance(of_kinds, dict) else None
        if not isinstance(told, dict):
            raise UserError(f"rope_parameters must be an object that has one for {kind}, or none")
        if fields.get("rope_scaling") or told.get("rope_type", "default") != "default":
            raise UserError(f"rotary positions of {kind} are scaled; valid: rope_type 'default'")
        base = told.get("rope_theta", fields.get(older, default))
        check_above_zero(f"the rotary base of {kind}", base)
        bases.append(float(base))
    return bases


def _settings(fields: Mapping[str, Any]) -> dict[str, Any]:
    linear = {bool(fields[name]) for name in _LINEAR_BIASES}
    told = (linear == {True}, bool(fields["norm_bias"]))
    if len(linear) > 1 or told not in _BIASES.values():
        names = ", ".join((*_LINEAR_BIASES, "norm_bias"))
        raise UserError(f"{names} must be all true, all false, or norm_bias alone true")
    of_head = fields["classifier_activation"]
    if of_head not in tuple(ACTIVATIONS) or ACTIVATIONS[of_head] != ACTIVATIONS[fields["hidden_activation"]]:
        raise UserError("classifier_activation must be the same as hidden_activation")
    window, every = _windows(fields)
    base, local = _rotary_bases(fields)
    return {
        "type_vocab_size": 0,
        "positions": "rotary",
        "normalization_place": "pre",
        "feed_forward": "geglu",
        "biases": next(name for name, biases in _BIASES.items() if biases == told),
        "attention_window": window,
        "global_every": every,
        "rotary_base": base,
        "rotary_base_local": local if window is not None and local != base else None,
    }


def _fields(model: ModelConfig, ids: Mapping[str, int]) -> dict[str, Any]:
    linear, norm = _BIASES[model.biases]
    every = 1 if model.attention_window is None else model.global_every
    local = model.rotary_base if model.rotary_base_local is None else model.rotary_base_local
    bases = dict(zip(_BASES, (model.rotary_base, local), strict=True))
    return {
        **dict.fromkeys(_LINEAR_BIASES, linear),
        "norm_bias": norm,
        "decoder_bias": True,
        "classifier_activation": next(n for n, ours in ACTIVATIONS.items() if ours == model.activation),
        "classifier_pooling": "cls",
        "embedding_dropout": model.dropout_rate,
        "local_attention": 2 * (model.attention_window or model.max_position_embeddings),
        "layer_types": _layer_types(every, model.num_layers),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        },
        # What versions of transformers before 5 read of the last two.
        "global_attn_every_n_layers": every or model.num_layers,
        **{older: bases[kind] for kind, (older, _) in _BASES.items()},
        **dict.fromkeys(("cls_token_id", "bos_token_id"), ids["cls"]),
        **dict.fromkeys(("sep_token_id", "eos_token_id"), ids["sep"]),
    }


def _biases(rows: Rows, weight: str) -> Rows:
    """The biases beside these arrays, which our paths call `weight`."""
    return tuple(
        (ours.removesuffix(weight) + "bias", theirs.replace(".weight", ".bias")) for ours, theirs in rows
    )


_NORMS = (
    ("encoder/embeddings/layer_norm/scale", "model.embeddings.norm.weight"),
    ("encoder/layer_{>0}/attention_layer_norm/scale", "model.layers.{>0}.attn_norm.weight"),
    ("encoder/layer_{}/output_layer_norm/scale", "model.layers.{}.mlp_norm.weight"),
    ("encoder/final_layer_norm/scale", "model.final_norm.weight"),
    ("language_model/layer_norm/scale", "head.norm.weight"),
)
_KERNELS = (
    ("encoder/layer_{}/attention/query/kernel", "model.layers.{}.attn.Wqkv.weight[0/3]"),
    ("encoder/layer_{}/attention/key/kernel", "model.layers.{}.attn.Wqkv.weight[1/3]"),
    ("encoder/layer_{}/attention/value/kernel", "model.layers.{}.attn.Wqkv.weight[2/3]"),
    ("encoder/layer_{}/attention/output/kernel", "model.layers.{}.attn.Wo.weight"),
    ("encoder/layer_{}/gate/kernel", "model.layers.{}.mlp.Wi.weight[0/2]"),
    ("encoder/layer_{}/intermediate/kernel", "model.layers.{}.mlp.Wi.weight[1/2]"),
    ("encoder/layer_{}/output/kernel", "model.layers.{}.mlp.Wo.weight"),
    ("language_model/dense/kernel", "head.dense.weight"),
)
_POOLER_NORM = (("pooler/layer_norm/scale", "head.norm.weight"),)
_POOLER_KERNEL = (("pooler/dense/kernel", "head.dense.weight"),)
_NORM_BIASES = _biases((*_NORMS, *_POOLER_NORM), "scale")

MODERNBERT = Family(
    name="ModernBERT",
    model_type="modernbert",
    prefix="model.",
    settings={
        "vocab_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "max_position_embeddings": "max_position_embeddings",
        "dropout_rate": "mlp_dropout",
        "attention_dropout_rate": "attention_dropout",
        "initializer_range": "initializer_range",
        "layer_norm_epsilon": "norm_eps",
    },
    defaults={
        "vocab_size": 50368,
        "num_hidden_layers": 22,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
        "mlp_dropout": 0.0,
        "attention_dropout": 0.0,
        "norm_eps": 1e-5,
        "norm_bias": False,
        **dict.fromkeys(_LINEAR_BIASES, False),
        "classifier_activation": "gelu",
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
    },
    valid={"decoder_bias": (True,), "tie_word_embeddings": (True,)},
    activation="hidden_activation",
    activations={name: ours for name, ours in ACTIVATIONS.items() if ours.startswith("gelu")},
    further_settings=_settings,
    further_fields=_fields,
    head_dropouts=("classifier_dropout",),
    table=(
        ("encoder/embeddings/word_embeddings/embedding", "model.embeddings.tok_embeddings.weight"),
        *_NORMS,
        *_KERNELS,
        ("language_model/bias", "decoder.bias"),
    ),
    parts={
        "positions": {"rotary": ()},
        "segments": {"none": ()},
        "attention": {"bidirectional": ()},
        "normalization": {"layer_norm": ()},
        "normalization_place": {"pre": ()},
        "embedding_normalization": {"same": ()},
        "query_key_normalization": {"none": ()},
        "embedding_size": {None: ()},
        "layer_groups": {None: ()},
        "feed_forward": {"geglu": ()},
        "biases": {
            "none": (),
            "norms": _NORM_BIASES,
            "all": (*_NORM_BIASES, *_biases((*_KERNELS, *_POOLER_KERNEL), "kernel")),
        },
    },
    poolers={"transform": (*_POOLER_KERNEL, *_POOLER_NORM)},
    decoder="decoder",
    classes=same_classes("ModernBert", ("BertModel", "BertForMaskedLM")),
    tasks={
        f"BertFor{task}": TaskClass(f"ModernBertFor{task}", "classifier")
        for task in ("SequenceClassification", "TokenClassification", "MultipleChoice", "QuestionAnswering")
    },
)
