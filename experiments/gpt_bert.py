"""GPT-BERT of BASE's size for the 100 M words of BabyLM (Charpentier and Samuel 2024, arXiv 2410.24159).

    bert-jax pretrain gpt_bert_base --workdir runs/gpt_bert_base --data.corpus corpora/babylm

Corpus in the paper: 100 M words of BabyLM, children's stories and educational text, with a byte-level BPE
vocabulary of 16,384. One sequence of 16 is causal, the others are masked, 30% of the tokens at first and 15%
at the end; all tokens are predicted from the position before them. Sizes and rates are those of the authors'
`configs/base.json` and `train_100m.py`: 15,625 steps by LAMB at 0.01, a cosine, z-loss. A step has 1 M tokens
at first and 4 M at the end; the length is 128, from 70% of the steps on 256, and from 90% on 512. Here the
batch grows in seven sizes, there from epoch to epoch.

The encoder has the parts of theirs that are here: normalizations before each sublayer, of what attention
gives and inside feed-forward layers, gated feed-forward layers. Theirs has also relative positions whose
embeddings attention reads (here rotary ones), gates on attention's values, weighted sums of all earlier
layers' outputs before each sublayer, and normalizations without scales. It normalizes what attention gives
before the output projection, here after it; its feed-forward layers have no biases, and their initial weights
get smaller from layer to layer; its head has dropout and exact GELU; and its inputs have no [SEP]. Masks
there cover up to three tokens in a row, those that were masked least often first; here each is drawn on its
own. The cosine there ends at a tenth, followed by 250 steps to 0; and what is evaluated there is a moving
average of the parameters. This has not been tried at full size.
"""

from bert_jax.config import OptimizerConfig
from bert_jax.model_config import ModelConfig
from bert_jax.objectives import HybridLanguageModel
from bert_jax.objectives.experiment import Experiment
from data_pipeline.config import DataConfig, MaskingConfig, Phase

# The tokens of a step grow in a straight line from 2/8 to 8/8. Where rows are two and four times as
# long, they are a half and a quarter as many.
_BATCHES = (
    *((1 / 12, 2 / 8), (3 / 12, 3 / 8), (5 / 12, 4 / 8), (7 / 12, 5 / 8), (0.7, 6 / 8)),
    *((9 / 12, 6 / 8 / 2), (0.9, 7 / 8 / 2)),
    *((11 / 12, 7 / 8 / 4), (1.0, 8 / 8 / 4)),
)

GPT_BERT_BASE = Experiment(
    objective=HybridLanguageModel(z_loss=1e-4, causal_fraction=1 / 16),
    model=ModelConfig(
        vocab_size=16_384,
        intermediate_size=2560,
        type_vocab_size=0,
        positions="rotary",
        normalization_place="normformer",
        feed_forward="geglu",
        layer_norm_epsilon=1e-5,
        initializer_range=(2 / (5 * 768)) ** 0.5,
        dtype="bfloat16",
    ),
    data=DataConfig(
        pairing="contiguous",
        short_seq_prob=0.0,
        max_instances_per_row=4,
        masking=MaskingConfig(rate=0.3, last_rate=0.15),
        phases=(
            Phase(max_seq_length=128, max_predictions_per_seq=39, fraction=0.7),
            Phase(max_seq_length=256, max_predictions_per_seq=77, fraction=0.2),
            Phase(max_seq_length=512, max_predictions_per_seq=154, fraction=0.1),
        ),
        batch_schedule=_BATCHES,
    ),
    optimizer=OptimizerConfig(
        name="lamb",
        learning_rate=1e-2,
        warmup_steps=250,
        decay_start="warmup_end",
        decay_shape="cosine",
        bias_correction="adam",
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
        clip_norm=2.0,
    ),
    num_train_steps=15_625,
    global_batch_size=32_768,
)
