"""A trained model as a folder that Hugging Face transformers loads: weights, config, tokenizer, card."""

import json
import os
import shutil
from pathlib import Path

from safetensors.numpy import save_file

from bert_jax.accounting import total_parameters
from bert_jax.checkpoints import load_params
from bert_jax.config import ModelConfig
from bert_jax.huggingface import to_config, to_tensors
from bert_jax.huggingface_tokenizer import PAD, special_id, write_tokenizer
from bert_jax.metric_log import FILE_NAME as METRICS_FILE
from bert_jax.metric_log import read_rows
from bert_jax.workdir import RunRecord, read_record
from data_pipeline.errors import UserError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"


def export_run(workdir: Path, output: Path, step: int | None = None) -> Path:
    """Writes a checkpoint of a run in Hugging Face's layout; the folder appears whole or not at all.

    `transformers.BertForPreTraining` loads it, or `BertLMHeadModel` if it was trained left to right.

    Args:
      workdir: folder of a run.
      output: folder to make.
      step: which checkpoint; None takes the newest.

    Returns:
      `output`.

    Raises:
      UserError: `output` exists; `workdir` is no run, has no such checkpoint or no tokenizer.
    """
    if output.exists():
        raise UserError(f"{output} exists; name a folder that does not, or remove it first")
    record = read_record(workdir)
    tokenizer = find_tokenizer(workdir, record)
    step, params = load_params(workdir, step)
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = output.parent / f".{output.name}.{os.getpid()}.unfinished"
    beside.mkdir()
    try:
        _write_model(beside, params, record.experiment.model, tokenizer)
        (beside / "README.md").write_text(_card(workdir, record, step), encoding="utf-8")
        beside.rename(output)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return output


def find_tokenizer(workdir: Path, record: RunRecord) -> Path:
    """The folder with the tokenizer that a run was trained with.

    Raises:
      UserError: there is none in the work directory, nor in the corpus if that is still there.
    """
    places = [workdir / "tokenizer", Path(record.experiment.data.corpus) / "tokenizer"]
    places.append(workdir / "corpus" / "tokenizer")
    for place in places:
        if place.is_dir():
            return place
    raise UserError(
        f"no tokenizer of this run in {', '.join(map(str, places))}; copy the folder `tokenizer` of its "
        f"corpus to {places[0]}"
    )


def _write_model(folder: Path, params: dict, model: ModelConfig, tokenizer_folder: Path) -> None:
    tokenizer = write_tokenizer(tokenizer_folder, folder, model.max_position_embeddings)
    largest = max(tokenizer.get_vocab().values())
    if largest >= model.vocab_size:
        raise UserError(
            f"the tokenizer in {tokenizer_folder} has ids up to {largest}, but the model has "
            f"{model.vocab_size} rows: it is not the one that the run was trained with"
        )
    config = to_config(model, pad_token_id=special_id(tokenizer, PAD))
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    # transformers refuses files that do not say for which framework they are.
    save_file(to_tensors(params, model), folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _card(workdir: Path, record: RunRecord, step: int) -> str:
    """A model card of what the run's files say."""
    experiment = record.experiment
    model = experiment.model
    loader = "BertLMHeadModel" if model.objective == "ltr" else "BertForPreTraining"
    facts = {
        "experiment": record.experiment_name,
        "objective": model.objective,
        "shape": f"{model.num_layers} layers, width {model.hidden_size}, {model.num_heads} heads",
        "parameters": f"{total_parameters(model):,}",
        "activation": model.activation,
        "steps": f"{step:,} of {experiment.num_train_steps:,}",
        "sequences a step": f"{experiment.global_batch_size:,}",
        "seed": experiment.seed,
    } | _heldout_metrics(workdir, step)
    table = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    untrained = (
        "The pooler and the next sentence head were not trained.\n" if model.objective == "mlm" else ""
    )
    return (
        f"---\nlibrary_name: transformers\n---\n# {record.experiment_name}\n\n"
        f"A BERT pretrained with bert-jax. `transformers.{loader}` loads it.\n{untrained}\n"
        f"| | |\n|---|---|\n{table}"
    )


def _heldout_metrics(workdir: Path, step: int) -> dict[str, str]:
    rows = [row for row in read_rows(workdir / METRICS_FILE) if row["split"] == "heldout"]
    at_step = [row for row in rows if row["step"] == step]
    if not at_step:
        return {}
    names = ("loss", "perplexity", "accuracy")
    figures = {name: value for name, value in at_step[-1].items() if name.endswith(names)}
    return {f"held-out {name}": f"{value:.4g}" for name, value in figures.items()}
