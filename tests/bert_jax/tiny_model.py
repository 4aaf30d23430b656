"""The smallest model with all parts, for the tests of steps, devices and heads to compile."""

from bert_jax.model_config import ModelConfig

TINY = ModelConfig(
    vocab_size=32,
    num_layers=1,
    hidden_size=16,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
)
