"""Rewrites tests/golden/experiments; run `python -m tests.golden.make_experiments_golden`, see the diff."""

from pathlib import Path

from bert_jax.cli.experiments import describe
from experiments import EXPERIMENTS

DIRECTORY = Path(__file__).parent / "experiments"


def golden(name: str) -> str:
    """All values of `base`; of another experiment the lines that differ from those of `base`."""
    lines, of_base = (describe(EXPERIMENTS[n]).splitlines() for n in (name, "base"))
    if name == "base":
        return "\n".join(lines) + "\n"
    paths = {line.partition(" = ")[0] for line in lines}
    gone = [line.partition(" = ")[0] for line in of_base if line.partition(" = ")[0] not in paths]
    return "".join([f"{line}\n" for line in lines if line not in of_base] + [f"without {x}\n" for x in gone])


def main() -> None:
    """Writes a file for each experiment and removes files of experiments that are gone."""
    DIRECTORY.mkdir(exist_ok=True)
    for path in DIRECTORY.glob("*.txt"):
        path.unlink()
    for name in EXPERIMENTS:
        (DIRECTORY / f"{name}.txt").write_text(golden(name), encoding="utf-8")


if __name__ == "__main__":
    main()
