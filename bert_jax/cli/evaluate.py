"""`bert-jax evaluate --workdir DIR`: a checkpoint's metrics on held-out documents."""

from bert_jax.cli.flags.evaluate import Evaluate
from bert_jax.pretraining.evaluate_run import evaluate_run


def run(args: Evaluate) -> None:
    """Evaluates, and prints the metrics of every phase. Raises UserError as `evaluate_run`."""
    rows, file = evaluate_run(args.workdir, args.step, args.data.corpus, args.eval_examples)
    for row in rows:
        metrics = {name: value for name, value in row.items() if isinstance(value, float)}
        print(f"step {row['step']}, length {row['max_seq_length']}:")
        for name, value in metrics.items():
            print(f"  {name:<{max(map(len, metrics))}}  {value:.4g}")
    print(f"wrote {file}")
