"""Names of parts, tasks, metrics and styles. Imports the standard library alone, so that flags parse fast."""

from collections.abc import Mapping
from typing import Literal

PartName = Literal["train", "dev", "test"]

PART_NAMES: Mapping[PartName, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "val", "valid", "validation"),
    "test": ("test",),
}
"""Names that data sets give to their parts."""

GlueName = Literal["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]

GlueSplit = Literal["train", "dev", "dev_mismatched", "test", "test_mismatched"]
"""In mnli, dev and test are the matched ones."""

MetricName = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman", "semeval_f1"]

EntityStyle = Literal["markers", "types"]
"""markers: a piece before and after each entity (Baldini Soares et al. 2019, "entity markers"; Wu and He
2019 if the vocabulary has no unused pieces). types: the words of each entity are replaced by its role and
type (Zhang et al. 2017, "entity masking"), so that a model can't memorise names."""

Scheme = Literal["iob1", "iob2", "iobes", "none"]
"""How tags mark where an entity begins and ends; none: tags of single words, such as parts of speech."""

Context = Literal["document", "sentence"]
"""document: a sentence to tag is shown with those around it in its document. sentence: it is shown alone."""
