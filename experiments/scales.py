"""How much studies spend: what the paper spent, hours on two CPU cores, or minutes without any download.

The minutes are of a study with few arms; `departures` has 39, which take hours.
"""

from bert_jax.study import Changes, Scale
from data_pipeline.config import INSTALLED_DOCUMENTATION, Phase

TINY: Changes = {
    "model.num_layers": 2,
    "model.hidden_size": 128,
    "model.num_heads": 4,
    "model.intermediate_size": 512,
    "model.max_position_embeddings": 128,
    "model.initializer_range": 0.08,  # see `quickstart`
    "model.dropout_rate": 0.0,
    "model.attention_dropout_rate": 0.0,
    "model.dtype": "float32",
    "data.phases": (Phase(max_seq_length=64, max_predictions_per_seq=10),),
    "optimizer.learning_rate": 2e-3,
    "optimizer.warmup_steps": 200,
    "global_batch_size": 64,
    "log_every": 100,
    "eval_examples": 2_000,
    "keep_checkpoints": 1,
}
"""A model of `quickstart`'s size."""

# With learned positions so small a model stays at a masked accuracy of 13 to 15% for 1,000 to 3,500 steps,
# depending on the seed, and tables would say when that ends. With rotary ones it takes 500 steps. As in the
# paper, nine tenths are short sequences; the rest are long ones.
SMALL: Changes = {
    **TINY,
    "model.vocab_size": 4096,
    "model.positions": "rotary",
    "data.phases": (
        Phase(max_seq_length=64, max_predictions_per_seq=10, fraction=0.9),
        Phase(max_seq_length=128, max_predictions_per_seq=20, fraction=0.1),
    ),
    "num_train_steps": 2_500,
    "optimizer.warmup_steps": 250,
    "eval_every": 250,
    "checkpoint_every": 250,
}
# At the rate of TINY, 6 layers of width 128 and 2 of width 256 learn no more than how frequent tokens are,
# and so do 2 of width 128 if all tokens to predict are [MASK]. At this one the base learns as much.
LARGER: Changes = {"optimizer.learning_rate": 1e-3, "model.initializer_range": 0.05}
"""For models larger than TINY, arms that learn nothing at its rate, and those that are compared with them."""

# Half the vocabulary of SMALL, as left-to-right steps compute logits at all positions.
SMOKE: Changes = {
    **TINY,
    "model.vocab_size": 2048,
    "model.positions": "rotary",
    "num_train_steps": 600,
    "eval_every": 200,
    "checkpoint_every": 200,
}


def small_note(models: str = "models of 2 layers of width 128", steps: int = 2_500) -> str:
    """What the reports of studies with SMALL say of the scale."""
    return (
        f"Scaled down: {models} with rotary positions, {steps - steps // 10:,} steps of 64 sequences of 64 "
        f"tokens and {steps // 10:,} of 128; fewer fine-tunings, and of tasks only those that are named. The "
        "table says how the arms differ at this size. It does not say how BASE or LARGE would."
    )


def smoke_note(models: str = "models of 2 layers of width 128") -> str:
    """What the reports of studies with SMOKE say of the scale."""
    return (
        f"A check that everything works: {models} with rotary positions, 600 steps on the installed "
        "documentation. It allows no conclusion about the arms."
    )


SMALL_SCALE = Scale(seeds=3, changes=SMALL, note=small_note())
SMOKE_SCALE = Scale(seeds=2, changes=SMOKE, corpus=INSTALLED_DOCUMENTATION, note=smoke_note())
