"""What surrounds an algorithm, for it to refuse: the training, the rounds, the cohort and the pacing."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedsim.algorithms.base import Setting
from fedsim.algorithms.fedavg import FedAvg
from fedsim.errors import Fault, UserError
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS


class Particular(FedAvg):
    """Works without momentum, for three rounds or more, of two clients or more, whose replies are new."""

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        yield from super().misfits(setting)
        if setting.training.momentum:
            problem = f"its steps are corrected, and {setting.training.momentum} keeps old ones"
            yield Fault("training.momentum", problem, "leave it out")
        if setting.num_rounds < 3:
            yield Fault("run.rounds", f"{setting.num_rounds} rounds", "write 3 or more")
        if setting.cohort_size < 2:
            yield Fault("participation.clients_per_round", "one alone", "write 2 or more")
        if setting.carries:
            problem = f"{setting.pacing!r} merges replies to earlier rounds"
            yield Fault("participation.pacing.params.late", problem, "write 'drop'")


LATE = SYNCHRONOUS.Config.model_validate({"late": "carry", "deadline": "5 s"})
MOMENTUM: dict[str, Any] = {"training": {"momentum": 0.5}}
FEW_ROUNDS: dict[str, Any] = {"rounds": 2}
ALONE: dict[str, Any] = {"clients_per_round": 1}
CARRYING: dict[str, Any] = {"pacing": SYNCHRONOUS(LATE)}


def _made() -> Particular:
    return Particular(Particular.Config())


def test_what_suits_it_runs(world: Any) -> None:
    result = world.check_every_way(_made)
    assert result.model_hash == world.run(world.algorithm("fedavg")).model_hash


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        (MOMENTUM, ["training.momentum"]),
        (FEW_ROUNDS, ["run.rounds"]),
        (ALONE, ["participation.clients_per_round"]),
        ({"num_clients": 1}, ["participation.clients_per_round"]),  # all there are
        (CARRYING, ["participation.pacing.params.late"]),
        (
            {**CARRYING, **FEW_ROUNDS, **MOMENTUM},
            ["training.momentum", "run.rounds", "participation.pacing.params.late"],
        ),
    ],
)
def test_what_does_not_is_told_with_its_path(changes: dict[str, Any], paths: list[str], world: Any) -> None:
    parts = world.parts(_made(), **changes)
    assert [fault.path for fault in parts.misfits()] == paths
    for way in (world.run, world.run_over_sockets):
        with pytest.raises(UserError) as caught:
            way(_made(), **changes)
        assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == paths


def test_the_cohort_is_of_those_who_can_take_part(world: Any) -> None:
    data = world.data()
    held = [data.indices(client, "train") for client in range(4)]
    nobody: list[int] = []
    parts = world.parts(_made(), data=world.holding(data, "train", [held[0], *[nobody] * 3]))
    assert parts.cohort_size == len(parts.eligible()) == 1
    assert [fault.path for fault in parts.misfits()] == ["participation.clients_per_round"]
