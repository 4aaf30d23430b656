"""The flags of `bert-jax study`."""

import dataclasses
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import tyro

from bert_jax.cli.parsing import given_flags, list_names, parse_flags, peek, take_name
from bert_jax.studies.arguments import RunStudy
from bert_jax.studies.changes import given_settings
from bert_jax.studies.file import read_studies
from bert_jax.studies.plan import make_plan, only_arms
from bert_jax.study import Study
from data_pipeline.checks import check_name
from data_pipeline.errors import UserError
from experiments import STUDIES

_HELP = """\
usage: bert-jax study NAME --output DIR [--corpus DIR] [--tasks DIR] [FLAGS]

Pretrain and measure the arms of an ablation with several seeds, and report the
table with error bars beside the published one. Run the same command again to
resume, also on several machines at once that share the directory.

  bert-jax study smoke --output studies/smoke
  bert-jax study table5 --scale small --output studies/table5 \\
      --corpus corpora/wiki --tasks tasks/

  --file my_study.py   takes the study from a file of your own
  --plan               shows the jobs and what they cost, and starts none
  --status             shows what is done and what is left
  --report             writes the report of what is done

`bert-jax study NAME --help` lists all flags. Settings of an experiment, such
as --num-train-steps 500, change all arms.

studies:
"""


def parse(argv: Sequence[str]) -> RunStudy:
    """Reads the command line; the study's name comes first.

    Raises:
      UserError: unknown study, unknown flag, impossible value, a file that holds no study.
      SystemExit: with status 0 for --check-flags and --help.
    """
    first = peek(argv, "--file", "--scale")
    studies: Mapping[str, Study] = read_studies(Path(first.file)) if first.file else STUDIES
    page = _HELP + list_names({name: study.title for name, study in studies.items()})
    known = f"{first.file} has {', '.join(studies)}" if first.file else "`bert-jax study --help` lists them"
    usage = f"bert-jax study NAME --output DIR; {known}"
    name = take_name(argv, what="study", usage=usage, page=page)
    check_name(name, studies, "study")
    study = studies[name]
    scale = first.scale or next(iter(study.scales))  # an empty one is refused with the other flags
    if scale not in study.scales:
        raise UserError(f"study {name} has no scale {scale!r}; valid: {', '.join(study.scales)}")
    # The values of the base at this scale are the defaults of its flags.
    plan = make_plan(study, scale, study.scales[scale], {})
    values = plan.experiments[plan.study.base]
    default = RunStudy(study=study, output=tyro.MISSING_NONPROP, scale=scale, experiment=values)
    about = f"{inspect.getdoc(RunStudy)}\n\nScales: {', '.join(study.scales)}."
    read = parse_flags(
        RunStudy, argv[1:], command=f"bert-jax study {name}", default=default, description=about
    )
    args = dataclasses.replace(read, given=given_flags(argv), argv=tuple(argv))
    if args.check_flags is not None:
        changes = given_settings(args.experiment, args.given)
        plan = make_plan(study, scale, study.scales[scale], changes, args.budget_flops)
        only_arms(plan, args.arms).check_devices(args.check_flags)
        sys.exit(0)
    return args
