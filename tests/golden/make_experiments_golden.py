"""Rewrites tests/golden/experiments; run `python -m tests.golden.make_experiments_golden`, see the diff."""

from pathlib import Path

from bert_jax.cli.experiments import describe
from experiments import EXPERIMENTS

FOLDER = Path(__file__).parent / "experiments"


def main() -> None:
    """Writes a file for each experiment and removes files of experiments that are gone."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name, experiment in EXPERIMENTS.items():
        (FOLDER / f"{name}.txt").write_text(describe(experiment), encoding="utf-8")


if __name__ == "__main__":
    main()
