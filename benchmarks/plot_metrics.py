"""Draws held-out accuracy and perplexity against steps, a line a run. Needs matplotlib.

    python benchmarks/plot_metrics.py docs/results/wiki.png docs/results/wiki_*.jsonl

Takes the `metrics.jsonl` of runs under any name; the name becomes the label.
"""

import argparse
import json
from pathlib import Path

FIGURES = (("accuracy", 100, "held-out accuracy, %"), ("perplexity", 1, "held-out perplexity"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path, help="picture to write, .png or .svg")
    parser.add_argument("metrics", type=Path, nargs="+")
    args = parser.parse_args()

    import matplotlib.pyplot as plt

    picture, panels = plt.subplots(1, len(FIGURES), figsize=(10, 4))
    for file in args.metrics:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if row["split"] == "heldout"]
        prefix = "lm" if "lm_accuracy" in rows[0] else "mlm"
        for panel, (name, scale, _) in zip(panels, FIGURES, strict=True):
            values = [scale * row[f"{prefix}_{name}"] for row in rows]
            panel.plot([row["step"] for row in rows], values, marker=".", label=file.stem)
    for panel, (_, _, title) in zip(panels, FIGURES, strict=True):
        panel.set(xlabel="steps", ylabel=title)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    picture.tight_layout()
    picture.savefig(args.output, dpi=110)


if __name__ == "__main__":
    main()
