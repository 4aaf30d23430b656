"""The families of models that Hugging Face's format is read and written for, one module each.

A family is a value (`family.Family`): tables of names, and the few functions in which it differs.
"""

from collections.abc import Mapping

from bert_jax.formats.families.albert import ALBERT
from bert_jax.formats.families.bert import BERT
from bert_jax.formats.families.distilbert import DISTILBERT
from bert_jax.formats.families.electra import ELECTRA
from bert_jax.formats.families.family import Family
from bert_jax.formats.families.megatron_bert import MEGATRON_BERT
from bert_jax.formats.families.modernbert import MODERNBERT
from bert_jax.formats.families.roberta import ROBERTA, XLM_ROBERTA
from bert_jax.formats.tensors import missing_parts
from bert_jax.model_config import ModelConfig

_IN_ORDER = (BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, MEGATRON_BERT, MODERNBERT, ELECTRA, ALBERT)
FAMILIES: Mapping[str, Family] = {family.model_type: family for family in _IN_ORDER}
"""The families by `model_type`; the first that has a model's parts is the one that it is written as."""


def nearest_family(model: ModelConfig, bert_class: str | None = None) -> Family:
    """The first family that has all parts of an encoder, or that lacks fewest of them; of several alike the
    first that has the class and the pooler.

    Args:
      model: of the encoder.
      bert_class: BERT's name of the class that is wanted; None: any.
    """
    return min(
        FAMILIES.values(),
        key=lambda family: (
            len(missing_parts(family.parts, model)),
            bert_class is not None and bert_class not in family.classes,
            model.pooler not in family.poolers,
        ),
    )
