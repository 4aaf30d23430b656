"""How much studies spend: what the paper spent, hours on two CPU cores, or minutes without any download."""

from bert_jax.studies.study import Changes
from data_pipeline.config import Phase

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

# The plateau on which small models with learnt positions begin ends after 1,000 to 3,000 steps.
SMALL: Changes = {
    **TINY,
    "model.vocab_size": 8192,
    "num_train_steps": 12_000,
    "optimizer.warmup_steps": 600,
    "eval_every": 1_000,
    "checkpoint_every": 1_000,
}
SMOKE: Changes = {
    **TINY,
    "model.vocab_size": 4096,
    "num_train_steps": 1_200,
    "eval_every": 300,
    "checkpoint_every": 300,
}

SMALL_NOTE = (
    "Scaled down: a model of 2 layers of width 128 on 49 million tokens, 12,000 steps; tasks are those named, not "
    "the paper's, with few fine-tunings. It shows what the arms do at this size; it says nothing of BASE or LARGE."
)
SMOKE_NOTE = (
    "A check that everything works: a model of 2 layers of width 128, 1,200 steps on the installed documentation, "
    "where it has hardly left the plateau of its first steps. No conclusion about the arms can be drawn."
)
