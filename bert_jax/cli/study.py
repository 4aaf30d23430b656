"""`bert-jax study NAME --output DIR`: an ablation from its pretrainings to its table."""

from bert_jax.studies.arguments import RunStudy
from bert_jax.studies.run import run_study


def run(args: RunStudy) -> int:
    """Does what is left of a study. Returns and raises as `run_study`."""
    return run_study(args)
