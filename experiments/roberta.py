"""RoBERTa-BASE's recipe (Liu et al. 2019, Table 9): dynamic masks, no NSP, inputs of full length.

    bert-jax pretrain roberta_base --workdir runs/roberta_base --data.corpus corpora/large

Corpus in the paper: 160 GB of text, a byte-level BPE vocabulary of 50,000. Here the vocabulary is
the corpus's own (WordPiece or SentencePiece): pass --model.vocab-size if it is not 30,522, and
expect numbers to differ for that reason. 8,192 sequences of 512 a step, 500,000 steps.
Hardware in the paper: 1,024 V100, about a day for the first 100,000 steps of LARGE.
An input never crosses into the next document (DOC-SENTENCES in its section 4.2), so the last input of a
document is short; RoBERTa's inputs do cross (FULL-SENTENCES).
The decay from the end of warm-up and the bias-corrected moments are those of its training code.
"""

from dataclasses import replace

from bert_jax.objectives import MaskedLM
from data_pipeline.config import Phase
from experiments.base import BASE

ROBERTA_BASE = replace(
    BASE,
    objective=MaskedLM(),
    model=replace(BASE.model, activation="gelu_exact"),
    data=replace(
        BASE.data,
        pairing="contiguous",
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
        clip_norm=None,
    ),
    num_train_steps=500_000,
    global_batch_size=8192,
)
