"""BERT-BASE as published (Devlin et al. 2019, sections 3 and A.2).

    bert-jax pretrain base --workdir runs/base --data.corpus corpora/wiki_books

Corpus: BooksCorpus and English Wikipedia, 3.3 G words, lower-cased, the released vocabulary of
30,522. 256 sequences a step, 900,000 steps at length 128, then 100,000 at 512.
Hardware in the paper: 4 Cloud TPUs (16 chips), 4 days.
Expected: NSP accuracy 97-98%, held-out MLM perplexity 3.99 (Table 6); after fine-tuning MNLI-m
84.4, QNLI 88.4, MRPC 86.7 (accuracy), SST-2 92.7, SQuAD 1.1 F1 88.5 on the development sets (Table 5).
"""

from bert_jax.model_config import ModelConfig
from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import DataConfig, Phase

BASE = Experiment(
    model=ModelConfig(dtype="bfloat16"),
    data=DataConfig(
        phases=(
            Phase(max_seq_length=128, max_predictions_per_seq=20, fraction=0.9),
            Phase(max_seq_length=512, max_predictions_per_seq=77, fraction=0.1),
        )
    ),
)
