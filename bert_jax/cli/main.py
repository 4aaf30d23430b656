"""`bert-jax COMMAND ...`: finds the command, imports only its module, and reports errors in one line."""

import importlib
import inspect
import sys
import typing
from collections.abc import Sequence

from bert_jax import __version__
from bert_jax.cli import ctrl_c
from bert_jax.cli.errors import report
from bert_jax.cli.flags import check_name, parse_flags
from bert_jax.cli.huge_pages import restart_with_huge_pages
from bert_jax.exit_status import BAD_INPUT
from data_pipeline.errors import UserError

COMMANDS = {
    "prepare": "turn text into shards of token ids and a vocabulary",
    "inspect": "show a prepared corpus: statistics, examples, masks",
    "pretrain": "train a named experiment, or resume where it stopped",
    "evaluate": "measure a checkpoint on held-out documents",
    "report": "compare runs: figures, settings that differ, curves",
    "export": "write a run's model for Hugging Face transformers",
    "finetune": "train a head on a pretrained model: GLUE, SQuAD, your own data",
    "predict": "apply a fine-tuned model to new data",
    "submission": "join the predictions of GLUE tasks into a zip for its server",
    "convert": "write a model for transformers, google-research/bert or numpy",
    "fill-mask": "guess the [MASK] tokens of a sentence",
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
package (about six minutes on two cores):
  bert-jax pretrain quickstart --workdir runs/quickstart

exit status: 0 done; 1 training stopped on NaN or infinity, `compile` found
  no room on the chip, or a defect, with its traceback; 2 wrong input;
  69 a disk failed, or another process of the run died or did not come: run
  the same command again, on all hosts;
  75 interrupted and saved: run the same command again to resume;
  130 interrupted before there was anything to save.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status; user errors are printed to stderr as one line."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run_command(argv)
    except (UserError, OSError, KeyboardInterrupt) as error:
        return report(error)


def _run_command(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        rows = [f"  {name:<13} {summary}" for name, summary in COMMANDS.items()]
        print(_HELP.format(commands="\n".join(rows)), end="")
        return 0 if argv else BAD_INPUT
    if argv[0] == "--version":
        print(f"bert-jax {__version__}")
        return 0
    name, rest = argv[0], argv[1:]
    check_name(name, COMMANDS, "command")
    module = importlib.import_module(f"bert_jax.cli.{name.replace('-', '_')}")
    if hasattr(module, "parse"):
        args = module.parse(rest)
    else:
        args = parse_flags(_flags_of(module.run), rest, command=f"bert-jax {name}")
    return module.run(args) or 0


def _flags_of(run: typing.Callable) -> type:
    """The dataclass that a command's `run` takes."""
    parameter = next(iter(inspect.signature(run).parameters))
    return typing.get_type_hints(run)[parameter]


def entry_point() -> int:
    """Entry point of the installed `bert-jax`: `main`, with huge pages for commands that compute for long."""
    ctrl_c.listen()
    if sys.argv[1:2] in (["pretrain"], ["finetune"], ["predict"]):
        restart_with_huge_pages()
    return main()


if __name__ == "__main__":
    sys.exit(entry_point())
