"""What studies measure: the tasks of the paper with its ways of fine-tuning, and intrinsic measures.

`--tasks DIR` has a directory for each data set: glue, squad, conll2003, ner, sick, blimp.
"""

from bert_jax.study import Finetuned, HeldoutLM, MinimalPairs, Probe

# Section 4.1: batches of 32, 3 epochs, the best of four learning rates on the dev set. Section 5.2: the mean
# of 5 fine-tunings.
GLUE = {"learning_rate": (5e-5, 4e-5, 3e-5, 2e-5), "batch_size": (32,), "epochs": (3.0,), "seeds": 5}
# Section 4.2.
SQUAD = {"learning_rate": (5e-5,), "batch_size": (32,), "epochs": (3.0,), "seeds": 5}
# The document context of section 5.3.
_CONLL = {"seeds": 5, "context": "document", "max_seq_length": 512, "scheme": "iob1"}
# The grid of A.3.
_NER = {"grid": True, **_CONLL}
# Section 5.3: the encoder is frozen, and a BiLSTM of two layers of width 768 reads its activations. Of
# learning rate and epochs the paper says nothing.
_FEATURES_NER = {
    "learning_rate": (1e-3,),
    "batch_size": (32,),
    "epochs": (20.0,),
    **_CONLL,
    "frozen_layers": 12,
    "features.layers": (-4, -3, -2, -1),
    "features.lstm_layers": 2,
}

MNLI = Finetuned("MNLI-m", "accuracy", "mnli", "glue", GLUE)
QNLI = Finetuned("QNLI", "accuracy", "qnli", "glue", GLUE)
MRPC = Finetuned("MRPC", "accuracy", "mrpc", "glue", GLUE)
SST2 = Finetuned("SST-2", "accuracy", "sst2", "glue", GLUE)
SQUAD_F1 = Finetuned("SQuAD F1", "f1", "squad", "squad", SQUAD)

NER = Finetuned("NER", "f1", "ner", "conll2003", _NER)
FEATURES_NER = Finetuned("NER features", "f1", "ner", "conll2003", _FEATURES_NER, "features")

PERPLEXITY = HeldoutLM("LM ppl", "mlm_perplexity")
ALL_MASK_PERPLEXITY = HeldoutLM("all-[MASK] ppl", "all_mask_perplexity")
BITS = HeldoutLM("bits/byte", "bits_per_byte")

# For models of a few million parameters, which learn from higher rates, and in minutes.
_SHORT = {"learning_rate": (3e-4, 1e-3), "batch_size": (32,), "seeds": 2}
SMALL_COLA = Finetuned("CoLA", "matthews", "cola", "glue", {**_SHORT, "epochs": (3.0,)})
SMALL_SST2 = Finetuned("SST-2", "accuracy", "sst2", "glue", {**_SHORT, "epochs": (0.5,), "seeds": 1})
SMALL_STSB = Finetuned("STS-B", "spearman", "stsb", "glue", {**_SHORT, "epochs": (3.0,)})
SMALL_SICK = Finetuned(
    "SICK",
    "accuracy",
    "classify",
    "sick",
    {
        **_SHORT,
        "epochs": (3.0,),
        "text_column": "sentence_A",
        "pair_column": "sentence_B",
        "label_column": "entailment_label",
    },
    "sick",
)
SMALL_SQUAD = Finetuned(
    "SQuAD F1",
    "f1",
    "squad",
    "squad",
    {
        "learning_rate": (1e-3,),
        "batch_size": (32,),
        "epochs": (2.0,),
        "max_seq_length": 128,
        "doc_stride": 64,
        "max_query_length": 32,
    },
)
SMALL_NER = Finetuned("NER", "f1", "ner", "ner", {**_SHORT, "epochs": (10.0,), "max_seq_length": 64})
SMALL_FEATURES_NER = Finetuned(
    "NER features",
    "f1",
    "ner",
    "ner",
    {
        "learning_rate": (1e-3,),
        "batch_size": (32,),
        "epochs": (20.0,),
        "seeds": 2,
        "max_seq_length": 64,
        "frozen_layers": 2,
        "features.layers": (-2, -1),
        "features.lstm_layers": 1,
        "features.lstm_width": 128,
    },
    "features",
)
# A linear head needs higher rates than an encoder.
SMALL_NER_PROBE = Probe(
    "NER probe",
    "f1",
    "ner",
    "ner",
    {"learning_rate": (1e-3, 1e-2), "batch_size": (32,), "epochs": (10.0,), "max_seq_length": 64},
)
BLIMP = MinimalPairs("BLiMP", "accuracy")

# Tasks made from the installed documentation.
PACKAGE = Finetuned(
    "package", "accuracy", "classify", "package", {**_SHORT, "epochs": (2.0,), "seeds": 1}, "package"
)
NEIGHBOURS = Finetuned(
    "neighbours",
    "accuracy",
    "classify",
    "neighbours",
    {**_SHORT, "epochs": (2.0,), "seeds": 1, "pair_column": "text_b"},
    "neighbours",
)
PACKAGE_PROBE = Probe(
    "package probe",
    "accuracy",
    "classify",
    "package",
    {"learning_rate": (1e-2,), "batch_size": (32,), "epochs": (2.0,)},
    "package",
)
