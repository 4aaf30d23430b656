"""`bert-jax minimal-pairs --model DIR --data PATH --output DIR`: which of two sentences a model prefers."""

from bert_jax.cli.flags.minimal_pairs import MinimalPairs
from bert_jax.cli.model_source import open_source
from bert_jax.inference.sentence_scores import default_scoring, sentence_scores
from data_pipeline.atomic import atomically
from data_pipeline.directories import check_new_file, directory_of
from data_pipeline.tasks.minimal_pairs import accuracies, read_minimal_pairs, write_results


def run(args: MinimalPairs) -> None:
    """Scores all pairs before it writes anything."""
    check_new_file(args.output)
    pairs = read_minimal_pairs(args.data)
    model = open_source(args.source)
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    scoring = args.scoring or default_scoring(model)
    values = sentence_scores(model, sentences, scoring).tolist()
    scores = list(zip(values[::2], values[1::2], strict=True))
    summary = {"model": model.name, "scoring": scoring, **accuracies(pairs, scores)}
    with directory_of(args.output), atomically(args.output) as partial:
        write_results(partial, summary, pairs, scores)
    count = len(summary["paradigms"])
    mean = f", the mean of {count} paradigms" if count > 1 else ""
    print(f"accuracy by {scoring}: {summary['accuracy']:.1%}{mean}")
    print(f"wrote {args.output}")
