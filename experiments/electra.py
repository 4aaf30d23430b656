"""ELECTRA-SMALL and ELECTRA-BASE as published (Clark et al. 2020, arXiv 2003.10555, Table 6).

    bert-jax pretrain electra_small --workdir runs/electra_small --data.corpus corpora/wiki_books

Corpus: BERT's own, BooksCorpus and English Wikipedia, with its vocabulary of 30,522. SMALL takes 1,000,000
steps of 128 sequences of 128 tokens, BASE 766,000 steps of 256 sequences of 512, which by the paper's count
are 1.4e18 FLOPs and as many as BERT-BASE's, 6.4e19 (results.md says how that count differs from this
project's). Hardware in the paper: one V100 for 4 days, and 16 TPU v3 for 4 days.
Expected: GLUE's development sets on average 79.9 and 85.1 (Table 1), where BERT-BASE has 82.2, after
fine-tuning with `--layer-decay 0.8` and a rate of 1e-4 (SMALL: 3e-4), 10 epochs of RTE and STS-B.

Sizes and rates are those of the paper and of the authors' `configure_pretraining.py`: 15% of the tokens are
masked, of which 85% are [MASK] and 15% stay as they are. Inputs are two consecutive segments, and 5% are
drawn short. There, a tenth of the inputs have one segment instead, the others are cut near their middle
(here after any sentence), and warm-up multiplies a rate that decays already, which makes it at most 1% lower
(BASE: 1.3%). In fine-tuning, a linear layer with GELU precedes the classifier, as in transformers; the
authors' classifier reads [CLS] itself.
This has not been tried at full size.
"""

from dataclasses import replace

from bert_jax.model_config import ModelConfig
from bert_jax.objectives import ReplacedTokenDetection
from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import MaskingConfig, Phase
from experiments.base import BASE

ELECTRA_SMALL = Experiment(
    objective=ReplacedTokenDetection(generator_size=1 / 4),
    model=ModelConfig(
        hidden_size=256,
        num_heads=4,
        intermediate_size=1024,
        embedding_size=128,
        activation="gelu_exact",
        pooler="gelu_exact",
        dtype="bfloat16",
    ),
    data=replace(
        BASE.data,
        pairing="sentence_order",
        random_next_prob=0.0,
        short_seq_prob=0.05,
        masking=MaskingConfig(mask=0.85, same=0.15, random=0.0),
        phases=(Phase(max_seq_length=128, max_predictions_per_seq=19),),
    ),
    optimizer=replace(BASE.optimizer, learning_rate=5e-4),
    num_train_steps=1_000_000,
    global_batch_size=128,
)

ELECTRA_BASE = replace(
    ELECTRA_SMALL,
    objective=ReplacedTokenDetection(generator_size=1 / 3),
    model=replace(BASE.model, activation="gelu_exact", pooler="gelu_exact"),
    data=replace(ELECTRA_SMALL.data, phases=(Phase(max_seq_length=512, max_predictions_per_seq=79),)),
    optimizer=replace(BASE.optimizer, learning_rate=2e-4),
    num_train_steps=766_000,
    global_batch_size=256,
)
