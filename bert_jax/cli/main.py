"""`bert-jax COMMAND ...`: reads the flags of the command, then imports and runs it; errors are one line."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from bert_jax.cli.buckets import reach_buckets_by_gcsfs, run_with_buckets
from bert_jax.cli.huge_pages import restart_with_huge_pages
from bert_jax.cli.parsing import list_names, parse_flags
from bert_jax.exit_status import BAD_INPUT, report
from bert_jax.version import __version__
from data_pipeline.checks import check_name
from data_pipeline.errors import UserError
from data_pipeline.interrupts import interrupts_deferred

COMMANDS = {
    "prepare": "turn text into shards of token ids and a vocabulary",
    "inspect": "show a prepared corpus: statistics, examples, masks",
    "pretrain": "train a named experiment, or resume where it stopped",
    "evaluate": "measure a checkpoint, or compare models, on held-out documents",
    "study": "run an ablation: pretrain, measure, and report with error bars",
    "report": "compare runs: metrics, settings that differ, curves",
    "export": "write a run's model for Hugging Face transformers",
    "finetune": "train a head on a pretrained model: GLUE, SQuAD, your own data",
    "predict": "apply a fine-tuned model to new data",
    "submission": "join the predictions of GLUE tasks into a zip for its server",
    "convert": "write a model for transformers, google-research/bert or numpy",
    "fill-mask": "guess the [MASK] tokens of a sentence",
    "minimal-pairs": "measure which of two sentences a model prefers, as in BLiMP",
    "features": "write the hidden states of texts to a file",
    "compile": "show what a training step costs on a TPU slice",
    "experiments": "list the named experiments, or show one in full",
}

_HELP = """\
usage: bert-jax COMMAND [...]

Pretrain BERT in JAX: exact, and resumable to the bit.

commands:
{commands}

options:
  -h, --help    show this text; `bert-jax COMMAND --help` explains one command
  --version     show the version

To begin, train a small model on the documentation installed beside this
package (five to nine minutes on two cores):
  bert-jax pretrain quickstart --workdir runs/quickstart

exit status: 0 done; 1 training stopped on NaN or infinity, a run of a study
  failed, `compile` found no room on the chip, the reader of the output ended,
  or a defect, with its traceback; 2 wrong input;
  69 a disk or a bucket failed, another process of the run died or did not
  come, or no step was made for half an hour: run the same command again, on
  all hosts;
  75 interrupted and saved: run the same command again to resume;
  130 interrupted before there was anything to save.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status; user errors are printed to stderr as one line."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run_command(argv)
        sys.stdout.flush()  # at the end of Python, a reader that is gone would be a traceback
        return status
    except (UserError, OSError, KeyboardInterrupt) as error:
        return report(error)


def _run_command(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP.format(commands=list_names(COMMANDS)), end="")
        return 0 if argv else BAD_INPUT
    if argv[0] == "--version":
        print(f"bert-jax {__version__}")
        return 0
    check_name(argv[0], COMMANDS, "command")
    uses_bucket = any("gs:/" in word for word in argv)
    if uses_bucket:
        reach_buckets_by_gcsfs()
    # An interrupt inside an import would abort half-made C++ modules.
    with interrupts_deferred():
        args = _read_flags(argv[0], argv[1:])
        command = importlib.import_module(f"bert_jax.cli.{_module_name(argv[0])}")
    if uses_bucket:
        return run_with_buckets(argv[0], command.run, args) or 0
    return command.run(args) or 0


def _read_flags(command: str, argv: list[str]) -> Any:
    """The flags of a command in its dataclass, by the `parse` of its module of flags if that has one."""
    module = importlib.import_module(f"bert_jax.cli.flags.{_module_name(command)}")
    if hasattr(module, "parse"):
        return module.parse(argv)
    return parse_flags(getattr(module, command.title().replace("-", "")), argv, command=f"bert-jax {command}")


def _module_name(command: str) -> str:
    return command.replace("-", "_")


def _print_unless_late(unraisable: "sys.UnraisableHookArgs") -> None:
    # TensorStore's threads answer Orbax's event loop also when an error, which is reported, has closed it.
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def entry_point() -> int:
    """Entry point of the installed `bert-jax`: `main`, with huge pages for commands that compute for long."""
    sys.unraisablehook = _print_unless_late
    if sys.argv[1:2] in (["pretrain"], ["study"], ["finetune"], ["predict"]):
        restart_with_huge_pages()
    return main()


if __name__ == "__main__":
    sys.exit(entry_point())
