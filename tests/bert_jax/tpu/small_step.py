"""A model and a phase that the TPU compiler takes seconds for."""

from bert_jax.model_config import ModelConfig
from data_pipeline.config import Phase

PHASE = Phase(max_seq_length=128, max_predictions_per_seq=16)
MODEL = ModelConfig(
    vocab_size=1024, num_layers=2, hidden_size=128, num_heads=2, intermediate_size=512, dtype="bfloat16"
)
