"""`bert-jax pretrain EXPERIMENT --workdir DIR`: trains, or goes on where an earlier run stopped."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from bert_jax.cli.flags import nearest, parse_flags
from bert_jax.config import Experiment
from data_pipeline.config import INSTALLED_DOCUMENTATION
from data_pipeline.errors import UserError

_HELP = """\
usage: bert-jax pretrain EXPERIMENT --workdir DIR [FLAGS]

Train a named experiment. Run the same command again to go on where it stopped.

  bert-jax pretrain quickstart --workdir runs/quickstart
  bert-jax pretrain base --workdir runs/base --data.corpus corpora/wiki

Any setting of the experiment can be changed by a flag, for example
--model.num-layers 6. `bert-jax pretrain EXPERIMENT --help` lists the flags
with the values that the experiment gives them.

Ctrl-C and SIGTERM save a checkpoint and end with status 75: run the same
command again to go on. A second Ctrl-C ends at once.

experiments (`bert-jax experiments` shows their sizes):
"""


@dataclasses.dataclass(frozen=True)
class Pretrain:
    """Train a named experiment; the flags change its settings.

    Run the same command again to go on where it stopped. Ctrl-C and SIGTERM save a checkpoint and
    end with status 75. NaN or infinity ends the run with status 1; the last good checkpoint stays.
    """

    name: tyro.conf.Suppress[str]
    workdir: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the run: checkpoints, metrics.jsonl, TensorBoard curves, config.json."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]


def parse(argv: Sequence[str]) -> Pretrain:
    """Reads the command line; the experiment's name comes first and gives the defaults.

    Raises:
      UserError: unknown experiment, unknown flag, impossible value.
    """
    from experiments import EXPERIMENTS

    if argv and argv[0] in ("-h", "--help"):
        print(_HELP + "\n".join(f"  {name}" for name in EXPERIMENTS))
        sys.exit(0)
    if not argv or argv[0].startswith("-"):
        raise UserError(
            "name an experiment first: bert-jax pretrain EXPERIMENT --workdir DIR; "
            "`bert-jax experiments` lists them"
        )
    name = argv[0]
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; valid: {nearest(name, EXPERIMENTS)}")
    default = Pretrain(name=name, workdir=tyro.MISSING_NONPROP, experiment=EXPERIMENTS[name])
    return parse_flags(Pretrain, argv[1:], command=f"bert-jax pretrain {name}", default=default)


def run(args: Pretrain) -> int:
    """Trains. Returns 0, or 75 if the run was interrupted and saved, or 1 if it met NaN."""
    if not args.experiment.data.corpus:
        raise UserError(
            "no corpus: pass --data.corpus DIR; `bert-jax prepare` makes one from text, and "
            "`bert-jax pretrain quickstart` needs none"
        )
    from bert_jax import workdir

    with workdir.lock(args.workdir):
        return _train(args)


def _train(args: Pretrain) -> int:
    from bert_jax.cli import run_data, showcase
    from bert_jax.interrupt import EXIT_STATUS, listen
    from bert_jax.loop import Ending, train
    from bert_jax.nonfinite import NonFiniteError
    from bert_jax.parallel import make_program
    from bert_jax.pretraining import PretrainingTask

    keep_compiled(args.workdir)
    program = make_program(PretrainingTask(args.experiment.model), args.experiment)
    corpus = _corpus(args)
    _begin_or_go_on(args, corpus)
    data = run_data.make_data(args.experiment, corpus)
    heldout = run_data.heldout_batches(args.experiment, corpus)
    run_data.check_batches(args.experiment, data, heldout)
    if heldout is None:
        _say(f"note: {corpus} has no held-out documents, so there is no evaluation")
    evaluation = heldout and run_data.make_evaluation(program, args.experiment, heldout)
    with listen() as interrupt:
        try:
            with memory_named():
                ending = train(program, data, evaluation, args.workdir, interrupt=interrupt, say=_say)
        except NonFiniteError as error:
            print(f"bert-jax: error: {error}", file=sys.stderr)
            return 1
        if ending is Ending.INTERRUPTED:
            _say(f"{interrupt.signal_name}: saved; run the same command again to go on")
            return EXIT_STATUS
    showcase.summarise(args.workdir)
    if args.experiment.data.corpus == INSTALLED_DOCUMENTATION:
        showcase.export_and_fill(args.workdir, corpus)
    return 0


@contextlib.contextmanager
def memory_named() -> Iterator[None]:
    """Raises UserError if the devices run out of memory inside the block."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ").rstrip(".")
        raise UserError(
            f"the devices have too little memory ({reason}); compute fewer sequences at once by "
            f"--parallel.accumulation-steps, or make the model or --global-batch-size smaller"
        ) from None


def keep_compiled(workdir: Path) -> None:
    """Keeps compiled programs in the work directory, so that going on starts in seconds."""
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str((workdir / "compilation-cache").absolute()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _corpus(args: Pretrain) -> str:
    """The corpus's path; that of the installed documentation is made in the work directory."""
    if args.experiment.data.corpus != INSTALLED_DOCUMENTATION:
        return args.experiment.data.corpus
    from bert_jax.cli import prepare
    from data_pipeline.corpus import MANIFEST_FILE

    corpus = args.workdir / "corpus"
    if not (corpus / MANIFEST_FILE).exists():
        print("making a corpus of the installed packages' documentation", flush=True)
        status = prepare.run(
            prepare.Prepare(
                inputs=(INSTALLED_DOCUMENTATION,),
                output=str(corpus),
                train_vocab="wordpiece",
                vocab_size=args.experiment.model.vocab_size,
                holdout=0.05,
            )
        )
        if status:
            sys.exit(status)  # it has said why
    return str(corpus)


def _begin_or_go_on(args: Pretrain, corpus: str) -> None:
    """Checks the corpus and the work directory's earlier runs, and records this one.

    Raises:
      UserError: another run lives here, or the corpus is altered or does not fit.
    """
    from bert_jax import workdir
    from bert_jax.checkpoints import saved_steps
    from bert_jax.cli import run_data
    from bert_jax.provenance import describe
    from data_pipeline import store

    run_data.check_vocabulary(args.experiment, corpus, _say)
    record = workdir.RunRecord(args.name, args.experiment, store.fingerprint(corpus))
    if saved_steps(args.workdir):
        before = workdir.read_record(args.workdir)
        workdir.check_same_run(args.workdir, before, record)
        record = dataclasses.replace(record, starts=before.starts)
    else:
        store.verify(corpus)
        workdir.copy_tokenizer(corpus, args.workdir)
    workdir.write_record(args.workdir, dataclasses.replace(record, starts=(*record.starts, describe())))


def _say(line: str) -> None:
    print(line, flush=True)
