"""`bert-jax evaluate`: a checkpoint's metrics on held-out documents, or any model's that compare."""

from collections.abc import Mapping

from bert_jax.cli.flags.evaluate import Evaluate
from bert_jax.cli.model_source import note_assumed
from bert_jax.formats.open_model import open_model
from bert_jax.pretraining.evaluate_run import evaluate_run
from bert_jax.studies.heldout_language_model import heldout_language_model


def run(args: Evaluate) -> None:
    """Evaluates, and prints the metrics.

    Raises UserError as `evaluate_run`, or as `open_model` and `heldout_language_model`.
    """
    if args.model is not None:
        model = open_model(args.model, args.step, args.activation)
        note_assumed(model)
        scores = heldout_language_model(model, args.data.corpus)
        print(f"{model.name}, held-out documents of {args.data.corpus}:")
        _print(scores.metrics)
        return
    assert args.workdir is not None, "one of the two is given"
    rows, file = evaluate_run(args.workdir, args.step, args.data.corpus, args.eval_examples)
    for number, row in enumerate(rows):
        phase = f"phase {number}, " if len(rows) > 1 else ""
        print(f"step {row['step']}, {phase}length {row['max_seq_length']}:")
        _print({name: value for name, value in row.items() if isinstance(value, float)})
    print(f"wrote {file}")


def _print(metrics: Mapping[str, float]) -> None:
    for name, value in metrics.items():
        print(f"  {name:<{max(map(len, metrics))}}  {value:.4g}")
