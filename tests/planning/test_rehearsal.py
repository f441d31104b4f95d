from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fedsim.algorithms.base import Setting
from fedsim.algorithms.fedavg import FedAvg
from fedsim.errors import Fault, UserError
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.planning.rehearsal import rehearse
from fedsim.rng import Key
from fedsim.runtime.budget import UntilConfig
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.run import run


def test_a_rehearsal_costs_what_the_run_costs(make_parts: Callable[..., Parts]) -> None:
    rehearsal = rehearse(make_parts(rounds=5))
    real = run(make_parts(rounds=5))
    assert (rehearsal.rounds, rehearsal.planned) == (2, 5)
    assert rehearsal.totals == real.totals
    # Loads are drawn anew in each round: 1.3 % on phones of the class `high`.
    assert rehearsal.simulated_s == pytest.approx(real.simulated_s, rel=0.05)


def test_a_run_of_one_round_is_rehearsed_whole(make_parts: Callable[..., Parts]) -> None:
    rehearsal = rehearse(make_parts(rounds=1))
    real = run(make_parts(rounds=1))
    assert rehearsal.simulated_s == real.simulated_s
    assert rehearsal.totals == real.totals


def test_whether_parts_suit_an_algorithm_is_a_matter_of_the_whole_run(
    make_parts: Callable[..., Parts],
) -> None:
    class Patient(FedAvg):
        def misfits(self, setting: Setting) -> Iterator[Fault]:
            if setting.num_rounds < 5:
                yield Fault("run.rounds", f"{setting.num_rounds} rounds", "write 5")

    algorithm = Patient(Patient.Config())
    assert rehearse(replace(make_parts(rounds=5), algorithm=algorithm)).rounds == 2
    with pytest.raises(UserError, match="4 rounds"):
        rehearse(replace(make_parts(rounds=4), algorithm=algorithm))


def test_a_rehearsal_stands_for_as_many_rounds_as_there_can_be(make_parts: Callable[..., Parts]) -> None:
    few, many = rehearse(make_parts(rounds=3)), rehearse(make_parts(rounds=10**9))
    each = few.last.traffic.bytes_up
    assert few.totals.bytes_up == 3 * each
    assert many.totals.bytes_up == 10**9 * each


def test_rounds_at_an_interval_do_not_follow_at_once(make_parts: Callable[..., Parts]) -> None:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"interval": "1 h"}))
    rehearsal, real = rehearse(make_parts(rounds=5, pacing=pacing)), run(make_parts(rounds=5, pacing=pacing))
    assert real.simulated_s > 4 * 3600
    assert rehearsal.simulated_s == pytest.approx(real.simulated_s, abs=0.01)


def test_a_budget_of_energy_ends_as_many_rounds_as_it_lasts_for(make_parts: Callable[..., Parts]) -> None:
    group = GroupConfig.model_validate(
        {"count": 4, "device": "high", "model": "linear", "compute_power": "2 W"}
    )
    fleet = build_fleet([group], ServerConfig(), Key.root(0), default_model="linear")
    without_end = make_parts(rounds=1, fleet=fleet, until=UntilConfig.model_validate({"joules": "1000 MJ"}))
    each_j = run(without_end).spent_j
    assert each_j is not None
    until = UntilConfig.model_validate({"joules": f"{4.5 * each_j} J"})
    parts = make_parts(rounds=None, fleet=fleet, until=until)
    assert rehearse(parts).planned == run(parts).num_rounds == 5


def test_frames_are_told_by_exchange_kind_and_way(make_parts: Callable[..., Parts]) -> None:
    grid = rehearse(make_parts()).frames()
    down, up = grid.rows
    assert down[:4] == ("train", "model", "down", "8")
    assert up[:4] == ("train", "update", "up", "8")
    assert down[7] == up[7] == "650"
    assert grid.title == "Frames in 2 rounds"


def test_computing_is_told_for_each_dispatch(make_parts: Callable[..., Parts]) -> None:
    operations, time = rehearse(make_parts()).compute().rows
    assert operations[0] == "client, operations"
    assert operations[3].endswith("FLOP")
    assert time[3].endswith("s")


def test_an_algorithm_without_frames_has_an_empty_table(make_parts: Callable[..., Parts]) -> None:
    rehearsal = rehearse(make_parts("local"))
    assert rehearsal.frames().rows == []
    assert rehearsal.totals.bytes_up == 0
    assert rehearsal.compute().rows
