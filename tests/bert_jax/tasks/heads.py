"""Every kind of head by a name, for tests that hold for all of them."""

from collections.abc import Callable, Mapping

from bert_jax.finetuning_config import FineTuningConfig
from bert_jax.tasks.choice import Choice
from bert_jax.tasks.classify import Classification, Regression
from bert_jax.tasks.finetuning.head import Head
from bert_jax.tasks.ranking import InBatch, Triplet
from bert_jax.tasks.relation import Relation
from bert_jax.tasks.squad import Spans
from bert_jax.tasks.tagging import Tagging

HEADS: Mapping[str, Callable[[FineTuningConfig], Head]] = {
    "classification": Classification,
    "regression": Regression,
    "choice": Choice,
    "spans": Spans,
    "tagging": Tagging,
    "relation": Relation,
    "in_batch_ranking": InBatch,
    "triplet_ranking": Triplet,
}
KINDS = tuple(HEADS)
