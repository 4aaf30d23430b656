"""Makes a corpus and shows it: progress on a terminal, then what was made and what in it spoils BERT runs."""

import signal
import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from bert_jax.exit_status import SAVED
from data_pipeline.corpus.vocabulary_file import Vocabulary
from data_pipeline.interrupts import handled
from data_pipeline.preparing.prepare import EVERY_CORE, PrepareSettings, Runner, prepare
from data_pipeline.preparing.summary import warnings_about


def make_corpus(
    settings: PrepareSettings,
    output: str,
    *,
    vocabulary: Vocabulary | None = None,
    runner: Runner = EVERY_CORE,
    overwrite: bool = False,
) -> int:
    """Runs `data_pipeline.preparing.prepare.prepare`, of which see the arguments and errors, and shows it.

    Returns 0, or 75 if Ctrl-C or SIGTERM interrupted it; the same call resumes.
    """
    began = time.perf_counter()
    try:
        # SIGTERM raises KeyboardInterrupt, as Ctrl-C does.
        with handled({signal.SIGTERM: signal.default_int_handler}), _progress_bar() as bar:
            tasks: dict[str, Any] = {}

            def show(name: str, done: int, total: int | None) -> None:
                if name not in tasks:
                    tasks[name] = bar.add_task(name, total=total)
                bar.update(tasks[name], completed=done)

            manifest = prepare(
                settings,
                output,
                vocabulary=vocabulary,
                runner=runner,
                overwrite=overwrite,
                on_progress=show,
            )
    except KeyboardInterrupt:
        print("bert-jax: interrupted; run the same command again to resume", file=sys.stderr)
        return SAVED
    _print_summary(output, manifest, time.perf_counter() - began)
    return 0


def describe_left_out(manifest: dict[str, Any]) -> list[str]:
    """A line for each setting by which a corpus left documents out, with how many went."""
    settings, lines = manifest.get("settings", {}), []
    if settings.get("duplicates", "keep") != "keep":
        counts = (f"{count:,} {kind}" for kind, count in manifest["left_out_duplicates"].items())
        lines.append(f"duplicates left out: {', '.join(counts)}")
    if settings.get("max_tokens_per_character") is not None:
        lines.append(f"filtered: {manifest['filtered_documents']:,} documents")
    return lines


def _progress_bar() -> Progress:
    """One bar per pass, on stderr and only on a terminal."""
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    return Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    )


def _print_summary(output: str, manifest: dict[str, Any], seconds: float) -> None:
    table = Table("", "documents", "sentences", "tokens", "shards", "on disk", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for split, entry in manifest["splits"].items():
        counts = [f"{entry[name]:,}" for name in ("documents", "sentences", "tokens")]
        size = sum(shard["bytes"] for shard in entry["shards"])
        table.add_row(split, *counts, str(len(entry["shards"])), _megabytes(size))
    tokenizer, text = manifest["tokenizer"], manifest["text_bytes"]
    console = Console()
    console.print(f"[bold]{escape(output)}[/bold]", highlight=False)
    console.print(table)
    console.print(
        f"vocabulary: {tokenizer['vocab_size']:,} pieces, {tokenizer['kind']}, {tokenizer['casing']}\n"
        f"text: {_megabytes(text)} in {seconds:.1f} s, {text / 1e6 / seconds:.2f} MB/s",
        highlight=False,
    )
    for line in describe_left_out(manifest):
        console.print(line, highlight=False)
    warnings = warnings_about(manifest["statistics"])
    if manifest["settings"]["holdout"] and not manifest["splits"]["heldout"]["documents"]:
        warnings.append(
            "no document is held out, so runs have no evaluation: those that --holdout chose hold no token "
            "or were filtered. Give a larger one."
        )
    for line in warnings:
        console.print(f"[bold yellow]warning:[/bold yellow] {line}", highlight=False)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
