"""What the machines of a study keep in its directory together."""

import threading
from pathlib import Path, PurePosixPath

from bert_jax.parallel.leases import Leases
from bert_jax.studies.directory import LEASES_DIRECTORY, STUDY_FILE, read_study, record_inputs_and_seeds
from data_pipeline.atomic import write_json
from tests.bert_jax.studies.small_study import plan_of


def test_of_two_numbers_of_seeds_the_largest_is_kept(tmp_path: Path) -> None:
    """Also if another machine writes its own while this one starts."""
    plan = plan_of(scale="tiny")  # 2 seeds
    write_json(tmp_path / STUDY_FILE, {"study": plan.study.name})
    starting = threading.Thread(target=record_inputs_and_seeds, args=(tmp_path, plan, "fingerprint", 100))
    with Leases(tmp_path / LEASES_DIRECTORY).hold(PurePosixPath(STUDY_FILE)) as has:
        assert has
        starting.start()
        starting.join(1.0)
        assert starting.is_alive(), "it waits until the other one has written"
        write_json(tmp_path / STUDY_FILE, {"study": plan.study.name, "seeds": 5})
    starting.join()
    assert read_study(tmp_path)["seeds"] == 5
