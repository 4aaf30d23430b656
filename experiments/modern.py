"""ModernBERT's encoder and its first stage of training (Warner et al. 2024, arXiv 2412.13663).

    bert-jax pretrain modern_base --workdir runs/modern_base --data.corpus corpora/large

Corpus in the paper: 1.719 T tokens of web text, code and papers, a byte-level BPE vocabulary of 50,368.
Here the vocabulary is the corpus's own: pass --model.vocab-size if it is smaller, and expect numbers to
differ for that reason. 30% of the tokens are masked, rows are packed, and the rate is constant after warm-up.
The batch grows over the first 50 G tokens from 768 to 4,608 rows (LARGE: over 10 G tokens from 448 to 4,928),
with as many steps of each size.
Sizes and rates are those of the paper and of the authors' `modernbert-base-pretrain.yaml`; weight decay is
multiplied by the learning rate here and not there.

Encoder and language model head have 149.7 M and 395.9 M parameters, the paper's 149 M and 395 M; what
`bert-jax experiments` counts beside them are pooler and next sentence head, which are not trained.

What their training has and this has not: smaller initial output layers, dropout of 0.1 on the output of
attention alone, LARGE's start from BASE's weights, and its second half at a rate of 5e-5. There, each token
is masked or not by itself, [CLS] and [SEP] too, and held-out text is masked at 15%.

The second stage, with context of 8,192 at the rate 3e-4, and at its end a decay, is a branch:

    bert-jax pretrain modern_base --branch-from runs/modern_base --workdir runs/modern_long \\
        --data.corpus corpora/long --model.rotary-base 160000 --model.rotary-base-local 10000 \\
        --data.phases.0.max-seq-length 8192 --data.phases.0.max-predictions-per-seq 2458 \\
        --global-batch-size 576 --num-train-steps 438480 --optimizer.learning-rate 3e-4 \\
        --optimizer.decay-shape sqrt --optimizer.decay-power 1 --optimizer.decay-start 427884

These are 250 G tokens and 50 G more, with as many tokens a step as before. The authors' decay ends at a
thousandth of the rate, this one at 0.

Layers with a window compute their scores in blocks, so their cost grows with the length and not with its
square. This has not been tried at full size.
"""

from dataclasses import replace

from bert_jax.config import OptimizerConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLM
from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import DataConfig, MaskingConfig, Phase

_TOKENS, _LENGTH = 1.719e12, 1024


def _steps(tokens: float, batch_size: float) -> int:
    return round(tokens / (batch_size * _LENGTH))


def _with_growing_batch(run: Experiment, sizes: int, tokens: float) -> Experiment:
    """The run of `_TOKENS`, with batches of 1/sizes, 2/sizes, ... of the whole one until so many tokens."""
    parts = [number / sizes for number in range(1, sizes)]
    steps_of_each = _steps(tokens, sum(parts) * run.global_batch_size)
    num_train_steps = (sizes - 1) * steps_of_each + _steps(_TOKENS - tokens, run.global_batch_size)
    schedule = tuple((number * steps_of_each / num_train_steps, part) for number, part in enumerate(parts, 1))
    return replace(run, num_train_steps=num_train_steps, data=replace(run.data, batch_schedule=schedule))


_BASE = Experiment(
    objective=MaskedLM(),
    model=ModelConfig(
        vocab_size=50_368,
        num_layers=22,
        hidden_size=768,
        num_heads=12,
        intermediate_size=1152,
        max_position_embeddings=8192,
        type_vocab_size=0,
        positions="rotary",
        normalization_place="pre",
        feed_forward="geglu",
        biases="none",
        attention_window=64,
        global_every=3,
        activation="gelu_exact",
        pooler="transform",
        layer_norm_epsilon=1e-5,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dtype="bfloat16",
    ),
    data=DataConfig(
        pairing="contiguous",
        short_seq_prob=0.0,
        max_instances_per_row=4,
        masking=MaskingConfig(rate=0.3),
        phases=(Phase(max_seq_length=_LENGTH, max_predictions_per_seq=308),),
    ),
    optimizer=OptimizerConfig(
        name="stable_adamw",
        learning_rate=8e-4,
        warmup_steps=_steps(3e9, 768),
        decay_power=0,
        bias_correction="adam",
        beta2=0.98,
        epsilon=1e-6,
        weight_decay=1e-5 / 8e-4,
        clip_norm=None,
    ),
    global_batch_size=4608,
)

_LARGE = replace(
    _BASE,
    model=replace(_BASE.model, num_layers=28, hidden_size=1024, num_heads=16, intermediate_size=2624),
    optimizer=replace(
        _BASE.optimizer,
        learning_rate=5e-4,
        # 2 G tokens, in the first four sizes and a part of the fifth
        warmup_steps=1664,
        weight_decay=1e-5 / 5e-4,
    ),
    global_batch_size=4928,
)

MODERN_BASE = _with_growing_batch(_BASE, sizes=6, tokens=50e9)
MODERN_LARGE = _with_growing_batch(_LARGE, sizes=11, tokens=10e9)
