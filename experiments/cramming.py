"""Cramming (Geiping and Goldstein 2022, arXiv 2212.14034): one GPU, one day.

    bert-jax pretrain cramming --workdir runs/cramming --data.corpus corpora/large

Corpus in the paper: the Pile or C4, without documents that take more than 0.25 tokens per character
(`bert-jax prepare --max-tokens-per-character 0.25`, as in the authors' settings for these corpora), and a
WordPiece vocabulary of 32,768. Hardware in the paper: one GPU (RTX 2080 Ti, A4000 or A6000) for 24 hours.
There the clock ends a run; this one reads as many tokens as the authors' settings allowed at most when the
paper appeared, 600,000 micro-batches of 128 x 128 (900,000 since June 2023). For a day of another machine,
scale `--num-train-steps` and `--optimizer.warmup-steps` to the time that the run shows.

Sizes and rates are those of the authors' `crammed-bert.yaml` and `bert-o4.yaml`: 16 layers with
normalization before each sublayer, gated feed-forward layers, linear layers without biases; 25% of the tokens
masked, no dropout; AdamW at 1e-3, gradients clipped at 0.5. The rate rises linearly from a quarter of its
peak, and falls to 0 from 75% of the tokens on. The batch grows until 60% of the tokens, here in four sizes,
there in 64.

There the rate rises with the time that is spent, and so with the tokens; here with the steps, of which the
small batches take most: after 11, 22 and 45% of the tokens it is at 57, 73 and 89% of its peak, there at 36,
48 and 70%.

What is theirs and not here: a learned factor on the positions, a normalization both of the embeddings and
before the first layer's attention, a head without its linear layer and its bias, and text cut into rows
regardless of sentences. Here rows are filled with whole sentences. This has not been tried at full size.
"""

from bert_jax.config import OptimizerConfig, ParallelConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLM
from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import DataConfig, MaskingConfig, Phase

# Of 76.8 M rows, a size that grows in a straight line until 60% of them is nearest to 1,024 for the first
# 11.25%, to 2,048 until 22.5%, and to 4,096 until 45%. The rate falls in the last 25%, which are 2,344 steps.
_ENDS, _STEPS = {1024: 8438, 2048: 12_657, 4096: 16_876}, 22_032

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
        batch_schedule=tuple((end / _STEPS, size / 8192) for size, end in _ENDS.items()),
    ),
    optimizer=OptimizerConfig(
        learning_rate=1e-3,
        warmup_from=0.25,
        warmup_steps=_STEPS - 2344,
        decay_start="warmup_end",
        bias_correction="adam",
        beta2=0.98,
        epsilon=1e-12,
        clip_norm=0.5,
    ),
    parallel=ParallelConfig(accumulation_steps=32),
    num_train_steps=_STEPS,
    global_batch_size=8192,
)
