"""Cramming (Geiping and Goldstein 2022, arXiv 2212.14034): one GPU, one day.

    bert-jax pretrain cramming --workdir runs/cramming --data.corpus corpora/large

Corpus in the paper: the Pile or C4, without documents that take more than 0.3 tokens per character (`bert-jax
prepare --max-tokens-per-character 0.3`), and a WordPiece vocabulary of 32,768. Hardware in the paper: one
consumer GPU, such as an RTX A6000, for 24 hours. There the clock ends a run; this one reads as many tokens as
the authors' settings allow at most, 600,000 micro-batches of 128 x 128. For a day of another machine, scale
`--num-train-steps` and `--optimizer.warmup-steps` to the time that the run shows.

Sizes and rates are those of the authors' `crammed-bert.yaml` and `bert-o4.yaml`: 16 layers, before which
inputs are normalized, gated feed-forward layers, linear layers without biases; 25% of the tokens masked, no
dropout; AdamW at 1e-3, gradients clipped at 0.5. The rate rises from a quarter of its peak in a straight
line, and falls to 0 from 75% of the tokens on. The batch grows until 60% of the tokens, here in four sizes,
there in 64.

What is theirs and not here: a learnt factor on the positions, a normalization both of the embeddings and
before the first layer's attention, a head without its linear layer and its bias, rates and sizes that follow
the clock, and text cut into rows regardless of sentences. Here rows are filled with whole sentences. This has
not been tried at full size.
"""

import itertools

from bert_jax.config import ModelConfig, OptimizerConfig, ParallelConfig
from bert_jax.objectives import MaskedLM
from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import DataConfig, MaskingConfig, Phase

_ROWS, _BATCH = 600_000 * 128, 8192
# The parts of the rows during which each size is the nearest to one that grows in a straight line until 60%.
_PARTS = {1024: 0.1125, 2048: 0.1125, 4096: 0.225, 8192: 0.55}
_STEPS = {size: round(part * _ROWS / size) for size, part in _PARTS.items()}
_ENDS = tuple(itertools.accumulate(_STEPS.values()))

CRAMMING = Experiment(
    objective=MaskedLM(),
    model=ModelConfig(
        vocab_size=32_768,
        num_layers=16,
        intermediate_size=1536,
        max_position_embeddings=128,
        type_vocab_size=0,
        positions="sinusoidal",
        normalization_place="pre",
        feed_forward="geglu",
        biases="norms",
        activation="gelu_exact",
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dtype="bfloat16",
    ),
    data=DataConfig(
        pairing="full_sentences",
        short_seq_prob=0.0,
        masking=MaskingConfig(rate=0.25),
        phases=(Phase(max_seq_length=128, max_predictions_per_seq=32),),
        batch_schedule=tuple(
            (end / _ENDS[-1], size / _BATCH) for end, size in zip(_ENDS, _STEPS, strict=True)
        ),
    ),
    optimizer=OptimizerConfig(
        learning_rate=1e-3,
        warmup_from=0.25,
        warmup_steps=_ENDS[-1] - round(0.25 * _ROWS / _BATCH),
        decay_start="warmup_end",
        bias_correction="adam",
        beta2=0.98,
        epsilon=1e-12,
        clip_norm=0.5,
    ),
    parallel=ParallelConfig(accumulation_steps=32),
    num_train_steps=_ENDS[-1],
    global_batch_size=_BATCH,
)
