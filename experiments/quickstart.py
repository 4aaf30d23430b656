"""A whole run in minutes, on text that comes with the installed packages.

    bert-jax pretrain quickstart --workdir runs/quickstart

Corpus: English prose of the documentation of the installed Python packages, made on the spot with
a vocabulary of 4,096 word pieces. Hardware: 2 CPU cores, 5 to 9 minutes in all.
Expected: held-out MLM accuracy at least 5 times that of always guessing the most frequent token.

`quickstart` has the parts of today's encoders, and masked LM alone; it exports as ModernBertForMaskedLM.
`quickstart_bert` is BERT as published at the same size, with as many steps: it learns less in them, since
its learned positions hold it up for the first 1,500 steps.
"""

from dataclasses import replace

from bert_jax.config import OptimizerConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import MaskedLM
from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import INSTALLED_DOCUMENTATION, DataConfig, MaskingConfig, Phase

QUICKSTART_BERT = Experiment(
    model=ModelConfig(
        vocab_size=4096,
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        intermediate_size=512,
        max_position_embeddings=128,
        # With the paper's 0.02, a model this narrow hardly learns: its attention scores are too
        # small to distinguish positions. 1/sqrt(width) is 0.088.
        initializer_range=0.08,
        # A few minutes of training underfit; dropout would only slow learning down.
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dtype="float32",
    ),
    data=DataConfig(
        corpus=INSTALLED_DOCUMENTATION,
        phases=(Phase(max_seq_length=64, max_predictions_per_seq=10),),
    ),
    optimizer=OptimizerConfig(learning_rate=2e-3, warmup_steps=200),
    num_train_steps=2_800,
    global_batch_size=64,
    log_every=50,
    eval_every=250,
    eval_examples=2_000,
    checkpoint_every=250,
)

QUICKSTART = replace(
    QUICKSTART_BERT,
    objective=MaskedLM(),
    model=replace(
        QUICKSTART_BERT.model,
        # Two thirds of 512, since a gated layer has three matrices.
        intermediate_size=344,
        type_vocab_size=0,
        positions="rotary",
        normalization_place="pre",
        feed_forward="geglu",
        biases="none",
        activation="gelu_exact",
        pooler="transform",
    ),
    data=replace(
        QUICKSTART_BERT.data,
        pairing="contiguous",
        # More masks teach more in a step; the last steps have as many as the evaluation.
        masking=MaskingConfig(rate=0.25, last_rate=0.15),
        phases=(Phase(max_seq_length=64, max_predictions_per_seq=16),),
    ),
    optimizer=OptimizerConfig(
        name="muon",
        learning_rate=8e-3,
        warmup_steps=200,
        bias_correction="adam",
        beta2=0.98,
        # The run reads the corpus six times. With the usual 0.01 it fits that text too closely.
        weight_decay=0.1,
    ),
)
