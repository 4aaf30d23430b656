"""The recipe that did best in `departures` at scale `small`, and a study of it with seeds that chose nothing.

bert-jax pretrain best_small --workdir runs/best_small --data.corpus corpora/wiki_4096
bert-jax study best_small --output studies/best_small --corpus corpora/wiki_4096 --tasks tasks/

Of the arms of `departures`, `chain_6_clm_then_mlm` has the lowest held-out perplexity under the masks that
all share. In the study, as there, its 753 steps and the base's 1,000 cost the same.
"""

from dataclasses import replace

from bert_jax.config import OptimizerConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import CausalThenMaskedLM
from bert_jax.objectives.experiment import Experiment
from bert_jax.study import Study
from data_pipeline.config import DataConfig, MaskingConfig, Phase
from experiments.departures import DEPARTURES
from experiments.scales import small_note

BEST_SMALL = Experiment(
    objective=CausalThenMaskedLM(),
    model=ModelConfig(
        vocab_size=4096,
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        # Two thirds of 512, since a gated layer has three matrices.
        intermediate_size=344,
        max_position_embeddings=128,
        type_vocab_size=0,
        positions="rotary",
        normalization_place="pre",
        feed_forward="geglu",
        biases="none",
        initializer_range=0.05,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dtype="float32",
    ),
    data=DataConfig(
        pairing="contiguous",
        masking=MaskingConfig(rate=0.3),
        phases=(
            Phase(max_seq_length=64, max_predictions_per_seq=0, fraction=0.25),  # causal
            Phase(max_seq_length=64, max_predictions_per_seq=20, fraction=0.65),
            Phase(max_seq_length=128, max_predictions_per_seq=40, fraction=0.1),
        ),
    ),
    optimizer=OptimizerConfig(
        name="muon",
        learning_rate=4e-3,
        warmup_steps=75,
        bias_correction="adam",
        decay_shape="cosine",
    ),
    num_train_steps=753,
    global_batch_size=64,
    log_every=100,
    eval_every=500,
    eval_examples=2_000,
    checkpoint_every=500,
    keep_checkpoints=1,
)

_SMALL = DEPARTURES.scales["small"]
_DEPARTURES = DEPARTURES.at(_SMALL)

BEST_SMALL_STUDY = Study(
    name="best_small",
    title="The best recipe of `departures` at scale small",
    base="base",
    arms={
        "base": _DEPARTURES.arms["base"],
        "best_small": replace(_DEPARTURES.arms["chain_6_clm_then_mlm"], compared_with=""),
    },
    measures=_DEPARTURES.measures,
    scales={
        "small": replace(
            _SMALL,
            first_seed=_SMALL.seeds,
            arms=None,
            measures=None,
            note=f"{small_note(steps=1_000)} Both arms have the FLOPs of the base's steps.",
        )
    },
)
