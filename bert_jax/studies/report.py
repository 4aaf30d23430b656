from pathlib import Path

from bert_jax.studies.results import StudyResults


def write_report(directory: Path, results: StudyResults) -> None:
    (directory / "report.md").write_text(repr(results.measurements))
