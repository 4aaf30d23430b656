"""Tagged words: files in columns, rows, and scores."""

import dataclasses

from data_pipeline.tasks.finetuning.flags import TaskFlags
from data_pipeline.tasks.tagging.columns import Scheme
from data_pipeline.tasks.tagging.rows import Context


@dataclasses.dataclass(frozen=True)
class Flags(TaskFlags):
    """A directory with train, dev and optionally test: one word with its tag per line, a blank line between
    sentences (.txt, .tsv, .conll, .conllu, .bio, .iob or .iob2; or CoNLL-2003's eng.train, eng.testa,
    eng.testb); or tfds:conll2003."""

    max_seq_length: int = 128
    """Maximum length of a sequence, in tokens; longer sentences are cut into windows."""
    context: Context = "sentence"
    """document: fill the sequence up with the words around the sentence, as the paper did."""
    word_column: str = "0"
    """Number of the words' column, from 0; or its name."""
    tag_column: str = "-1"
    """Number of the tags' column, from 0 or backwards from -1; or its name, if --word-column is one too."""
    scheme: Scheme = "iob2"
    """How entities are tagged in the files and in predictions; the original
    CoNLL-2003 has iob1. none: tags are of single words, such as parts of
    speech, and are scored by accuracy."""
    encoding: str = "utf-8-sig"
    """Encoding of the files; latin-1 for CoNLL-2002."""
