"""The words by which tasks, splits, scores and styles are chosen; the standard library alone, for flags."""

from collections.abc import Mapping
from typing import Literal

PartName = Literal["train", "dev", "test"]

PART_NAMES: Mapping[PartName, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "val", "valid", "validation"),
    "test": ("test",),
}
"""What data sets call their parts."""

GlueName = Literal["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]

GlueSplit = Literal["train", "dev", "dev_mismatched", "test", "test_mismatched"]
"""dev and test are the matched ones in mnli."""

MetricName = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman", "semeval_f1"]

EntityStyle = Literal["markers", "types"]
"""markers: a piece before and behind each entity (Baldini Soares et al. 2019, "entity markers"; Wu and He
2019 where the vocabulary has no unused pieces). types: the words of each entity give way to its role and type
(Zhang et al. 2017, "entity masking"), so that a model can't learn names by heart."""

Scheme = Literal["iob1", "iob2", "iobes", "none"]
"""How tags mark where an entity begins and ends; none where they mark none, as parts of speech."""

Context = Literal["document", "sentence"]
"""What a sentence to tag is shown with: the sentences around it in its document, or nothing."""
