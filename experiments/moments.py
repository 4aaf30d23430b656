"""What is lost if the optimizer keeps its moments in bfloat16: the same recipe with both dtypes.

bert-jax study moments --output studies/moments --corpus corpora/wiki_4096

The recipe is `best_small`'s, with AdamW and with Muon, which has moments of AdamW for all but the matrices.
"""

from bert_jax.study import Arm, Changes, Scale, Study
from experiments.best_small import BEST_SMALL
from experiments.measures import BITS, PERPLEXITY
from experiments.scales import small_note

_ADAMW: Changes = {"optimizer.name": "adamw"}
_BFLOAT16: Changes = {"optimizer.moment_dtype": "bfloat16"}

MOMENTS = Study(
    name="moments",
    title="The optimizer's moments in float32 and bfloat16",
    base="adamw",
    arms={
        "adamw": Arm(BEST_SMALL, _ADAMW),
        "adamw_bfloat16": Arm(BEST_SMALL, {**_ADAMW, **_BFLOAT16}),
        "muon": Arm(BEST_SMALL),
        "muon_bfloat16": Arm(BEST_SMALL, _BFLOAT16, compared_with="muon"),
    },
    measures=(PERPLEXITY, BITS),
    scales={"small": Scale(seeds=5, note=small_note(steps=BEST_SMALL.num_train_steps))},
)
