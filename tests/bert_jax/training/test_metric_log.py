"""The curves of a run: TensorBoard shows what `metrics.jsonl` holds, whatever happened to its own files."""

import math
import threading
from pathlib import Path

import pytest
import tensorflow as tf

from bert_jax.training.metric_log import METRICS_FILE, MetricLog, read_rows
from data_pipeline.errors import UserError
from tests.full_disk import files_no_larger_than


def shown(workdir: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """(curve, step) -> (value, wall time), as TensorBoard reads the directory."""
    points = {}
    for file in sorted((workdir / "tensorboard").glob("events.*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            if event.HasField("session_log"):  # a restart: TensorBoard purges later points
                points = {key: value for key, value in points.items() if key[1] < event.step}
            for value in event.summary.value:
                points[value.tag, event.step] = (value.simple_value, event.wall_time)
    return points


def write(workdir: Path, first: int, last: int, loss: float) -> None:
    """Logs each step from `first` to `last`, as one start of a run does."""
    log = MetricLog(workdir, first - 1)
    for step in range(first, last + 1):
        log.write({"step": step, "split": "train", "loss": loss, "timing": {"seconds": 1.5}})
    log.sync()
    log.close()


def test_curves_that_are_lost_come_back_with_the_next_start(tmp_path: Path) -> None:
    write(tmp_path, 1, 5, loss=0.5)
    before = shown(tmp_path)
    assert before.keys() == {(name, n) for name in ("train/loss", "train/seconds") for n in range(1, 6)}
    (file,) = (tmp_path / "tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:60])

    write(tmp_path, 4, 6, loss=0.25)
    after = shown(tmp_path)
    assert {step: value for (name, step), (value, _) in after.items() if name == "train/loss"} == {
        **dict.fromkeys((1, 2, 3), 0.5),
        **dict.fromkeys((4, 5, 6), 0.25),
    }
    assert all(after[key] == before[key] for key in after if key[1] < 4), "the times are those of the steps"
    assert [row["step"] for row in read_rows(tmp_path / METRICS_FILE)] == [1, 2, 3, 4, 5, 6]


def test_any_number_and_any_name_can_be_drawn(tmp_path: Path) -> None:
    log, name = MetricLog(tmp_path, 0), "recall@10 of " + "ü" * 200
    values = {"loss": 1e-30, "perplexity": 1e300, "accuracy": 1, name: -0.25, "gap": float("nan")}
    log.write({"step": 1_000_000, "split": "heldout", **values})
    log.close()
    drawn = {curve: value for (curve, step), (value, _) in shown(tmp_path).items() if step == 1_000_000}
    expected = {f"heldout/{key}": value for key, value in values.items()} | {"heldout/perplexity": math.inf}
    assert drawn == pytest.approx(expected, nan_ok=True)


def test_a_disk_that_fails_the_curves_is_told_to_the_run(tmp_path: Path) -> None:
    threads = threading.active_count()
    log = MetricLog(tmp_path, 0)
    assert threading.active_count() == threads, "an error in one would be lost, and the run would wait for it"
    log.write({"step": 1, "split": "train", "loss": 0.5})
    with files_no_larger_than(10), pytest.raises(OSError, match="File too large"):
        log.sync()  # the row is in metrics.jsonl; its point is not yet drawn
    log.close()


def test_what_else_lies_in_tensorboards_directory_stays(tmp_path: Path) -> None:
    recording = tmp_path / "tensorboard" / "plugins" / "profile" / "now" / "host.xplane.pb"
    recording.parent.mkdir(parents=True)
    recording.touch()
    write(tmp_path, 1, 1, loss=0.5)
    write(tmp_path, 2, 2, loss=0.5)
    assert recording.exists()
    assert len(list((tmp_path / "tensorboard").glob("events.*"))) == 1


def test_a_row_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, 0)
    with pytest.raises(ValueError, match="is not a row of metrics: its values must be numbers"):
        log.write({"step": 1, "split": "train", "entropy": [0.5, 0.7]})
    log.close()
    assert read_rows(tmp_path / METRICS_FILE) == []


def test_a_broken_last_line_is_left_out_and_one_in_the_middle_is_named(tmp_path: Path) -> None:
    write(tmp_path, 1, 3, loss=0.5)
    file = tmp_path / METRICS_FILE
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, lines[0][:20]]))
    assert [row["step"] for row in read_rows(file)] == [1, 2, 3]
    file.write_text("\n".join([lines[0], lines[1][:20], lines[2]]) + "\n")
    with pytest.raises(UserError, match="line 2 is not a row of metrics; remove the line"):
        MetricLog(tmp_path, 3)
    assert len(file.read_text().splitlines()) == 3
