"""`bert-jax study NAME --output DIR`: an ablation from its pretrainings to its table."""

from bert_jax.parallel import processes
from bert_jax.studies.arguments import RunStudy
from bert_jax.studies.places import place_of_worker
from bert_jax.studies.run import run_study


def run(args: RunStudy) -> int:
    """Does what is left of a study. Returns and raises as `run_study`."""
    place = place_of_worker()
    if args.distributed and place is not None and place.jobs == "pretrainings":
        return processes.run_distributed(lambda: run_study(args))
    return run_study(args)
