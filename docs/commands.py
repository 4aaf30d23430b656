"""MkDocs hook: writes the page of commands from what their --help prints."""

import contextlib
import io
from collections.abc import Collection

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from bert_jax.cli.main import COMMANDS, main
from bert_jax.tasks import TASKS


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated page."""
    files.append(File.generated(config, "reference/commands.md", content=_page()))
    return files


def _page() -> str:
    sections = ["# Commands", "What `--help` prints.", _help()]
    for command in COMMANDS:
        sections += [f"## bert-jax {command}", _help(command)]
        if command in ("pretrain", "compile"):
            sections += [
                "The flags of the experiment `base`; others differ in the defaults:",
                _help(command, "base"),
            ]
        if command == "finetune":
            for tasks in _tasks_by_flags():
                sections += [f"### bert-jax finetune {' | '.join(tasks)}", _help(command, tasks[0])]
    return "\n\n".join(sections)


def _tasks_by_flags() -> Collection[list[str]]:
    """Names of tasks, those with the same flags together."""
    names: dict[str, list[str]] = {}
    for name in TASKS:
        names.setdefault(_help("finetune", name).partition(" options\n")[2], []).append(name)
    return names.values()


def _help(*words: str) -> str:
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return f"```text\n{screen.getvalue().rstrip()}\n```"
