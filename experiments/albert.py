"""ALBERT-BASE (Lan et al. 2020, arXiv 1909.11942, section 4.1 and Table 1): shared layers, narrow embeddings.

    bert-jax pretrain albert_base --workdir runs/albert_base --data.corpus corpora/wiki_books

Corpus: BERT's own, BooksCorpus and English Wikipedia, with a SentencePiece vocabulary of 30,000; pass
--model.vocab-size if the corpus's is another. 4,096 sequences of up to 512 tokens a step, of which 10% are
drawn short, 125,000 steps by LAMB at the rate 0.00176.
Encoder and pooler have 11.7 M parameters, the paper's 12 M.
Expected: SQuAD 1.1 F1 89.3, MNLI 81.6, SST-2 90.3, RACE 64.0 (Table 2, after these 125,000 steps).

Warm-up over 3,125 steps is the default of the authors' `run_pretraining.py`; 77 predictions a sequence are
the paper's 15%, where that program's default is 20. Masks cover up to three words in a row.
This has not been tried at full size.
"""

from dataclasses import replace

from bert_jax.objectives import MaskedLMAndSOP
from data_pipeline.config import MaskingConfig, Phase
from experiments.base import BASE

ALBERT_BASE = replace(
    BASE,
    objective=MaskedLMAndSOP(),
    model=replace(BASE.model, vocab_size=30_000, embedding_size=128, layer_groups=1),
    data=replace(
        BASE.data,
        pairing="sentence_order",
        masking=MaskingConfig(unit="ngram"),
        phases=(Phase(max_seq_length=512, max_predictions_per_seq=77),),
    ),
    optimizer=replace(
        BASE.optimizer, name="lamb", bias_correction="adam", learning_rate=0.00176, warmup_steps=3_125
    ),
    num_train_steps=125_000,
    global_batch_size=4096,
)
