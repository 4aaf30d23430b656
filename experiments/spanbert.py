"""SpanBERT at BERT-BASE's size (Joshi et al. 2020, arXiv 1907.10529): masked spans, predicted from their
boundaries too.

    bert-jax pretrain spanbert_base --workdir runs/spanbert_base --data.corpus corpora/wiki_books_cased

Corpus: BERT's own, BooksCorpus and English Wikipedia, with BERT's cased vocabulary of 28,996. Inputs are one
segment of up to 512 tokens of a document; none is drawn short. 256 sequences a step, 2,400,000 steps.
Hardware in the paper: 32 V100 for 15 days, for LARGE. Its results are of LARGE (SQuAD 1.1 F1 94.6).
For BASE the authors' README gives a SQuAD 1.1 F1 of 92.4 on the development set.

The paper trains LARGE; here its recipe (section 4.2) has the sizes of BASE. The authors' commands differ
from the paper in the weight decay, 0.01, and those for BASE in the rate too, 2.5e-4. They cut gradients at
norm 1, of which the paper says nothing. As in their code, all parameters have weight decay, biases and
normalizations too.
This has not been tried at full size.
"""

from dataclasses import replace

from bert_jax.objectives import MaskedLMAndSpanBoundary
from data_pipeline.config import MaskingConfig, Phase
from experiments.base import BASE

SPANBERT_BASE = replace(
    BASE,
    objective=MaskedLMAndSpanBoundary(),
    model=replace(BASE.model, activation="gelu_exact", vocab_size=28_996),
    data=replace(
        BASE.data,
        pairing="contiguous",
        short_seq_prob=0.0,
        masking=MaskingConfig(unit="span"),
        phases=(Phase(max_seq_length=512, max_predictions_per_seq=77),),
    ),
    optimizer=replace(
        BASE.optimizer,
        learning_rate=1e-4,
        decay_start="warmup_end",
        bias_correction="adam",
        epsilon=1e-8,
        weight_decay=0.1,
        decay_exclusions=(),
    ),
    num_train_steps=2_400_000,
    global_batch_size=256,
)
