"""What `bert-jax study` does, once its flags are read: data, plan, workers, report."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax import exit_status
from bert_jax.pretraining.preparation import make_corpus
from bert_jax.studies.arguments import RunStudy
from bert_jax.studies.collect import collect
from bert_jax.studies.directory import (
    CORPUS_DIRECTORY,
    TASKS_DIRECTORY,
    begin,
    forget_failures,
)
from bert_jax.studies.plan import Plan, make_plan, with_budget
from bert_jax.studies.study import Finetuned, MinimalPairs, Scale
from bert_jax.workdir.config_text import flatten
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.corpus import store
from data_pipeline.corpus.documents import MANIFEST_FILE
from data_pipeline.errors import UserError
from data_pipeline.preparing.inputs import Source
from data_pipeline.preparing.prepare import PrepareSettings
