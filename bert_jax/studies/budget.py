"""Equal hours for all arms: the steps that each arm does in them, measured once and kept with the study.

A run is a function of its settings, and the number of its steps is one of them. So the steps are kept in
`budget.json`, from which every later start reads them, for further seeds too, whatever machine it is on.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import jax

from bert_jax.objectives.experiment import Experiment
from bert_jax.parallel.leases import Leases
from bert_jax.studies.cost import Speed, measured_speed, pretraining_seconds
from bert_jax.studies.directory import LEASES_DIRECTORY, claim, write_shared
from bert_jax.studies.plan import Plan
from bert_jax.workdir.config_text import differences, flatten
from bert_jax.workdir.record import MAY_CHANGE
from data_pipeline.errors import UserError, bad_input
from data_pipeline.json_text import load_json
from data_pipeline.stand_in import pull_files

BUDGET_FILE = "budget.json"
# The budget sets these (`with_steps`).
_MAY_CHANGE = MAY_CHANGE | {"num_train_steps", "optimizer.warmup_steps", "optimizer.decay_start"}


@dataclasses.dataclass(frozen=True)
class ArmSteps:
    """How many steps an arm does in its hours."""

    num_train_steps: int
    seconds_per_step: float
    devices: str
    """Where that was measured, such as "1 x cpu"."""
    settings: Mapping[str, Any]
    """Of the experiment that was measured."""


def read_steps(directory: Path) -> dict[str, ArmSteps]:
    """Arm -> its steps, as far as they have been measured. Raises UserError if the file is damaged."""
    path = directory / BUDGET_FILE
    if not path.exists():
        return {}
    try:
        return {arm: ArmSteps(**fields) for arm, fields in load_json(path).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise bad_input(error, path, f"{path} is damaged; name another --output") from None


def check_steps(measured: Mapping[str, ArmSteps], plan: Plan, directory: Path) -> None:
    """Raises UserError if the steps of an arm were measured with other settings than the plan's."""
    for arm, experiment in plan.experiments.items():
        if arm in measured and (
            changed := differences(measured[arm].settings, flatten(experiment), _MAY_CHANGE)
        ):
            raise UserError(
                f"{directory / BUDGET_FILE} has the steps of arm {arm} with other settings: "
                f"{'; '.join(changed)}; undo these changes, or name another --output"
            )


def seconds_of_steps(experiments: Mapping[str, Experiment], speed: Speed) -> dict[str, float]:
    """Seconds of an arm's step, over all phases; evaluation, saving and compiling are not counted."""
    return {
        arm: pretraining_seconds(experiment, speed) / experiment.num_train_steps
        for arm, experiment in experiments.items()
    }


def steps_in(hours: float, seconds: Mapping[str, float]) -> dict[str, int]:
    """The steps that each arm does in so many hours, from the seconds of one.

    Raises UserError if the hours are below one step of an arm.
    """
    steps = {arm: int(3600 * hours / one) for arm, one in seconds.items()}
    for arm, number in steps.items():
        if not number:
            raise UserError(
                f"--budget-hours {hours:g} is below one step of arm {arm}, which takes {seconds[arm]:.2g} s; "
                f"give more"
            )
    return steps


def keep_steps(
    experiments: Mapping[str, Experiment], directory: Path, identity: Mapping[str, Any], hours: float
) -> None:
    """Measures the steps of some arms on the devices at hand, and keeps them with the study.

    Of two machines that measure at once, the first one counts.

    Args:
      experiments: those of the arms, with any number of steps.
      directory: of the study; it is made only after measuring.
      identity: what `claim` takes.
      hours: of the pretraining of each arm with each seed.

    Raises:
      UserError: as `steps_in`.
    """
    seconds = seconds_of_steps(experiments, measured_speed)
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    measured = {
        arm: ArmSteps(number, seconds[arm], devices, flatten(experiments[arm]))
        for arm, number in steps_in(hours, seconds).items()
    }
    claim(directory, identity)
    with Leases(directory / LEASES_DIRECTORY).hold_when_free(PurePosixPath("budget")):
        pull_files(directory, BUDGET_FILE)
        all_arms = {**measured, **read_steps(directory)}
        fields = {arm: dataclasses.asdict(found) for arm, found in all_arms.items()}
        write_shared(directory, BUDGET_FILE, fields)
