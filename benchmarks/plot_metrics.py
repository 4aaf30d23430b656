"""Draws held-out accuracy and perplexity against steps, a line a file.

    python benchmarks/plot_metrics.py docs/results/wiki.png docs/results/wiki_*.jsonl

Takes copies of `metrics.jsonl` under any name, which becomes the label; `bert-jax report --plot` takes runs.
"""

import argparse
from pathlib import Path

from bert_jax.objectives import OBJECTIVES
from bert_jax.report.curves import check_plot, draw_curves
from bert_jax.training.metric_log import read_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path, help="picture to write, .png, .svg or .pdf")
    parser.add_argument("metrics", type=Path, nargs="+")
    args = parser.parse_args()
    check_plot(args.output)
    heldout = {
        file.stem: [row for row in read_rows(file) if row["split"] == "heldout"] for file in args.metrics
    }
    for file in args.metrics:
        if not heldout[file.stem]:
            parser.error(f"{file} has no held-out rows; name files of runs that were evaluated")
    known = [metric for kind in OBJECTIVES.values() for metric in kind.metrics]
    curves = {
        label: (tuple({m.name: m for m in known if m.name in rows[0]}.values()), [rows])
        for label, rows in heldout.items()
    }
    draw_curves(args.output, curves)


if __name__ == "__main__":
    main()
