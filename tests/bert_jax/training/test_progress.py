"""What a run shows while it runs."""

import contextlib
import re

import pytest

from bert_jax.task import Metric
from bert_jax.training.progress import ProgressDisplay, describe_row

METRICS = (Metric("accuracy", "accuracy", "{:.1%}"),)
TIMING = {
    "sequences_per_second": 557.0,
    "tokens_per_second": 12138.0,
    "model_flops_per_second": 6.71e10,
    "seconds_left": 7500.0,
}
ROW = {"step": 130_000, "split": "train", "loss": 0.7512, "accuracy": 0.5625, "timing": TIMING}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich treat any output as a terminal
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_narrow_terminal_cuts_the_metrics_alone(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with contextlib.closing(ProgressDisplay(129_000, 1_000_000, METRICS)) as display:
        display.advance_to(129_500)
        display.advance_to(130_000)
        display.show(ROW)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().out)
    line = re.split(r"[\r\n]+", plain.strip())[-1]
    assert re.match(r"step 130000/1000000 .* 2 h 5 min left +loss 0\.751, acc", line)
    assert len(line) <= columns
    assert ("FLOP/s" in line) is (columns == 200)


@pytest.mark.usefixtures("terminal")
def test_a_terminal_says_that_it_compiles_until_the_first_step_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for steps, words in ((0, "compiling"), (1, "training")):
        with contextlib.closing(ProgressDisplay(0, 10, METRICS)) as display:
            for step in range(steps):
                display.advance_to(step + 1)
        last = re.findall(r"step .*", capsys.readouterr().out)[-1]
        assert words in last


@pytest.mark.usefixtures("terminal")
def test_a_terminal_says_that_it_evaluates_and_then_the_time_left_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Closing shows the line for the last time.
    for ended, words in ((False, "evaluating"), (True, "2 h 5 min left")):
        with (
            contextlib.closing(ProgressDisplay(0, 1_000_000, METRICS)) as display,
            contextlib.ExitStack() as stack,
        ):
            display.show(ROW)
            stack.enter_context(display.evaluating())
            if ended:
                stack.close()
            display.close()
        last = re.findall(r"step .*", capsys.readouterr().out)[-1]
        assert f"{words} " in last
        assert "loss 0.751" in last


def test_the_task_decides_what_is_shown() -> None:
    row = ROW | {"perplexity": 8.25, "timing": {"fraction_of_peak": 0.5}}
    assert describe_row(row, []) == "loss 0.751, 50% of peak"
    perplexity = Metric("perplexity", "perplexity", "{:.1f}", better="lower")
    shown = describe_row(row, [perplexity, Metric("absent", "absent"), *METRICS])
    assert shown == "loss 0.751, perplexity 8.2, accuracy 56.2%, 50% of peak"


def test_the_time_left_may_be_shown_before_the_first_row(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(ProgressDisplay(0, 300, METRICS)) as display:
        display.show_time_left(4, None)
        display.show_time_left(4, 2100.0)
    assert capsys.readouterr().out == "step 4/300: about 35 min left\n"


def test_a_plain_line_ends_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(ProgressDisplay(0, 1_000_000, METRICS)) as display:
        display.show(ROW)
        display.show({"step": 130_000, "split": "heldout", "loss": 0.5, "timing": {"seconds": 3.0}})
    train, heldout = capsys.readouterr().out.splitlines()
    assert train.endswith("FLOP/s, 2 h 5 min left")
    assert heldout == "step 130000/1000000 heldout: loss 0.500"
