"""RoBERTa-BASE's recipe (Liu et al. 2019, Table 9): dynamic masks, no NSP, inputs of full length.

    bert-jax pretrain roberta_base --workdir runs/roberta_base --data.corpus corpora/large

Corpus in the paper: 160 GB of text, and a byte-level BPE vocabulary of 50,000 (section 4.4), which
`bert-jax prepare --train-vocab byte_bpe --vocab-size 50000 --casing cased` learns. The published model's
has 50,265 ids with its special tokens: with that one (`prepare --vocab DIR`) pass --model.vocab-size 50265.
8,192 sequences of 512 a step, 500,000 steps.
Hardware in the paper: 1,024 V100, about a day for the first 100,000 steps of LARGE.
Inputs are the FULL-SENTENCES of section 4.2. With --data.pairing contiguous an input never crosses into the
next document, as in DOC-SENTENCES there, and the last input of a document is short.
There are no segment embeddings, and the LayerNorm epsilon is 1e-5, as in its training code.
The decay from the end of warm-up, the bias-corrected moments, and the weight decay of all parameters, biases
and normalizations too, are those of its training code (fairseq). There, <s> and </s> may also be masked, and
the number of masked tokens is rounded at random.
"""

from dataclasses import replace

from bert_jax.objectives import MaskedLM
from data_pipeline.config import Phase
from experiments.base import BASE

ROBERTA_BASE = replace(
    BASE,
    objective=MaskedLM(),
    model=replace(
        BASE.model,
        activation="gelu_exact",
        vocab_size=50_000,
        type_vocab_size=0,
        layer_norm_epsilon=1e-5,
    ),
    data=replace(
        BASE.data,
        pairing="full_sentences",
        short_seq_prob=0.0,
        phases=(Phase(max_seq_length=512, max_predictions_per_seq=77),),
    ),
    optimizer=replace(
        BASE.optimizer,
        learning_rate=6e-4,
        warmup_steps=24_000,
        decay_start="warmup_end",
        bias_correction="adam",
        beta2=0.98,
        epsilon=1e-6,
        decay_exclusions=(),
        clip_norm=None,
    ),
    num_train_steps=500_000,
    global_batch_size=8192,
)
