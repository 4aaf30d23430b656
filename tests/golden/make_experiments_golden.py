"""Rewrites tests/golden/experiments and studies; run `python -m tests.golden.make_experiments_golden`."""

from pathlib import Path

from bert_jax.cli.experiments import describe
from bert_jax.studies.plan import PretrainingJob, make_plan
from bert_jax.workdir.config_text import flatten
from experiments import EXPERIMENTS, STUDIES

DIRECTORY = Path(__file__).parent / "experiments"
STUDIES_DIRECTORY = Path(__file__).parent / "studies"


def golden(name: str) -> str:
    """All values of `base`; of another experiment the lines that differ from those of `base`."""
    lines, of_base = (describe(EXPERIMENTS[n]).splitlines() for n in (name, "base"))
    if name == "base":
        return "\n".join(lines) + "\n"
    paths = {line.partition(" = ")[0] for line in lines}
    gone = [line.partition(" = ")[0] for line in of_base if line.partition(" = ")[0] not in paths]
    return "".join([f"{line}\n" for line in lines if line not in of_base] + [f"without {x}\n" for x in gone])


def golden_study(name: str) -> str:
    """The jobs of a study at each scale: of pretrainings the settings that are not those of `base`."""
    study = STUDIES[name]
    lines = [f"{study.title}; base {study.base}"]
    lines += [f"published {arm} {dict(row)}" for arm, row in study.published.items()]
    of_base = flatten(EXPERIMENTS["base"])
    for scale_name, scale in study.scales.items():
        plan = make_plan(study, scale_name, scale, {})
        lines += ["", f"scale {scale_name}, {scale.seeds} seeds, base {plan.study.base}"]
        lines += [f"  column {measure}" for measure in plan.study.measures]
        for job in plan.jobs:
            if f"seed-{scale.first_seed}" not in job.path.parts:
                continue
            settings = job.settings
            if isinstance(job, PretrainingJob):
                settings = {path: value for path, value in settings.items() if of_base.get(path) != value}
            lines += [f"  {job.path}", *(f"    {path} = {value!r}" for path, value in settings.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes a file for each experiment and each study, and removes files of those that are gone."""
    for directory, names, text in (
        (DIRECTORY, EXPERIMENTS, golden),
        (STUDIES_DIRECTORY, STUDIES, golden_study),
    ):
        directory.mkdir(exist_ok=True)
        for path in directory.glob("*.txt"):
            path.unlink()
        for name in names:
            (directory / f"{name}.txt").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
