"""Batteries on devices of 1 FLOP/s. A round takes 5 s: a second down, three of work, a second up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.algorithms.base import Exchange
from fedsim.clock import Trace
from fedsim.errors import RunError, UserError
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.power import EnergyConfig
from fedsim.report.energy import estimated
from fedsim.rng import Key
from fedsim.runtime.budget import UntilConfig
from fedsim.runtime.clients.batteries import Meter
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario
from tests.runtime.conftest import Scripted, absent, make_parts

UNIT = {"speed": "1 FLOP/s", "memory": "1 GB", "overhead": "0 s", "variation": 0.0, "latency": "0 s"}
POWERS = {
    "compute_power": "2 W",
    "receive_power": "1 W",
    "transmit_power": "4 W",
    "tail_power": "500 mW",
    "radio_tail": "2 s",
    "idle_power": "250 mW",
}
NOTHING: dict[str, Any] = dict.fromkeys(POWERS, "0 W") | {"radio_tail": "0 s"}
Away = Mapping[int, Sequence[tuple[float, float]]]


def fleet_of(num: int, away: Away | None = None, battery: Any = None, **group: Any) -> Any:
    tables = {"count": num, "device": "high", **UNIT, **POWERS, **group}
    if battery is not None:
        tables["battery"] = {"capacity": "100 J", "floor": 0.0, **battery}
    made = GroupConfig.model_validate(tables)
    fleet = build_fleet([made], ServerConfig.model_validate(UNIT), Key.root(0), default_model="linear")
    return fleet if away is None else absent(fleet, away)


def play(fleet: Any, algorithm: Any = None, **changes: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    trace, parts = (
        Trace(keep=True),
        make_parts(algorithm or Scripted(), (1,) * len(fleet), fleet=fleet, **changes),
    )
    return run(parts, trace=trace), trace.kept


def told(trace: Sequence[tuple[Any, ...]], *kinds: str) -> list[tuple[Any, ...]]:
    """Return the records of some kinds, with their instants in seconds."""
    return [(record[0] / 1e9, *record[1:]) for record in trace if record[1] in kinds]


def test_what_a_dispatch_spends_is_subtracted_when_it_is_spent() -> None:
    # A second of receiving, two of the radio's tail beside three of computing, a second of transmitting.
    result, trace = play(fleet_of(1, battery={"level": 0.9}))
    assert told(trace, "battery") == [(5.0, "battery", 0, 0, pytest.approx(90 - 1 - 1 - 6 - 4))]
    np.testing.assert_allclose(result.battery_levels, [0.78])


def test_the_tail_of_the_radio_goes_on_after_a_dispatch() -> None:
    slow = Scripted(work_s=lambda client, exchange: 3.0 if client.client else 0.0)
    result, _ = play(fleet_of(2, battery={}), slow)
    # Client 0 has replied at 2 s, and the run ends at 5 s.
    np.testing.assert_allclose(result.battery_levels, [1 - (1 + 4 + 1) / 100, 0.88])


def test_each_mbit_is_paid_for_when_its_frame_is_put_on_the_link() -> None:
    powers = NOTHING | {"transmit_per_mbit_s": "1 kW"}
    result, trace = play(fleet_of(1, battery={}, **powers), rounds=1)
    mbit = int(result.ledger.columns()["bytes"][1]) * 8 / 1e6
    np.testing.assert_allclose(result.battery_levels, [1 - 1000 * mbit / 100])
    empty, trace = play(fleet_of(1, battery={"level": 9.9 * mbit}, **powers))
    assert told(trace, "abandon") == [(4.0, "abandon", 0, 0, "battery empty")]
    assert empty.battery_levels.tolist() == [0.0]


def test_who_runs_empty_leaves_and_is_counted_by_its_own_cause() -> None:
    # 4 J: one for the download, and 2.5 W of computing and tail from then on.
    result, trace = play(fleet_of(1, battery={"level": 0.04}))
    assert told(trace, "abandon", "battery", "job_end") == [
        (2.2, "abandon", 0, 0, "battery empty"),
        (2.2, "battery", 0, 0, 0.0),
        (2.2, "job_end", 0, 0, "call", "cancelled"),
    ]
    assert dict(result.drops) == {"battery empty": 1}
    assert told(trace, "drop") == [(10.0, "drop", 0, 0, "battery empty")]


def test_who_runs_empty_in_a_transfer_leaves_in_it() -> None:
    result, trace = play(fleet_of(1, battery={"level": 0.10}))
    assert told(trace, "abandon") == [(4.5, "abandon", 0, 0, "battery empty")]
    assert result.ledger.columns()["outcome"].tolist() == ["delivered", "lost"]


def test_work_that_ends_as_the_battery_does_counts() -> None:
    result, trace = play(fleet_of(1, battery={"level": 0.12}))
    assert not result.drops
    assert told(trace, "battery") == [(5.0, "battery", 0, 0, 0.0)]


def test_below_its_floor_a_client_is_not_asked_but_finishes_what_it_is_at() -> None:
    fleet = fleet_of(2, battery={"level": 0.5, "floor": 0.45})
    with pytest.raises(RunError, match=r"with its battery above the floor, and none will be: .* lower floor"):
        play(fleet, rounds=2)
    result, _ = play(fleet, rounds=1)
    np.testing.assert_allclose(result.battery_levels, [0.38, 0.38])


def test_the_server_waits_until_a_battery_is_charged_to_its_floor() -> None:
    battery = {"level": 0.1, "floor": 0.2, "charge_power": "1 W", "plugged": "always"}
    algorithm = Scripted()
    play(fleet_of(1, battery=battery), algorithm)
    assert algorithm.noted("merge") == [(1, (0,), 15.0)]


@pytest.mark.parametrize(
    ("plugged", "away", "asked_s"),
    [
        ("away", [(0, 4), (10, 20)], 20.0),  # 4 J, then 10 J more: it is charged at 16 s, and back at 20 s
        ("available", [(4, 10)], 16.0),
        ({"name": "always"}, [(2, 12)], 12.0),
    ],
)
def test_charging_follows_the_client_or_a_model_of_its_own(plugged: Any, away: Any, asked_s: float) -> None:
    battery = {"level": 0.1, "floor": 0.2, "charge_power": "1 W", "plugged": plugged}
    _, trace = play(fleet_of(1, {0: away}, battery))
    assert told(trace, "dispatch") == [(asked_s, "dispatch", 0, 0, 1, "talk", 0)]


def test_charging_ends_at_the_capacity_and_helps_against_running_empty() -> None:
    battery = {"level": 0.99, "charge_power": "3 W", "plugged": "always"}
    result, _ = play(fleet_of(1, battery=battery))
    # Full after the download; 2.5 W are less than 3 W; of the upload 1 W is left.
    np.testing.assert_allclose(result.battery_levels, [0.99])
    result, _ = play(fleet_of(1, battery=battery | {"level": 0.01}))
    assert not result.drops


def test_an_exchange_with_everybody_asks_the_empty_too_and_loses_them_at_once() -> None:
    everybody = Scripted([Exchange("talk", reply=Scripted.messages[0], who="all")])
    fleet = fleet_of(
        2, battery={"level": {"distribution": "choice", "values": [0.0, 0.5], "weights": [1, 1]}}
    )
    levels = [fleet.battery(client).level_j for client in range(2)]
    assert levels == [0.0, 50.0]
    result, trace = play(fleet, everybody)
    assert told(trace, "abandon", "transfer_start")[:2] == [
        (0.0, "abandon", 0, 0, "battery empty"),
        (0.0, "transfer_start", 1, 0, False, "word", *told(trace, "transfer_start")[0][6:]),
    ]
    assert (result.by_client["dropped"].tolist(), result.by_client["merged"].tolist()) == ([1, 0], [0, 1])


def test_batteries_that_can_never_start_are_refused() -> None:
    for battery in (
        {"level": 0.1, "floor": 0.2},
        {"level": 0.0},
        {"level": 0.1, "floor": 0.2, "charge_power": "1 W", "plugged": "away"},
    ):
        with pytest.raises(
            UserError, match=r"fleet.0.battery: no client can ever start.* write a higher level"
        ):
            play(fleet_of(2, battery=battery))


def test_a_budget_of_energy_ends_the_run_when_it_is_spent() -> None:
    until = UntilConfig.model_validate({"joules": "9 J"})
    result, trace = play(fleet_of(2), rounds=None, until=until)
    # Two devices receive for a second, and draw 2.5 W each from then on.
    assert (result.stopped_by, result.simulated_s) == ("joules", 2.4)
    assert told(trace, "stop") == [(2.4, "stop", "joules")]
    assert result.spent_j == pytest.approx(9.0)


def test_a_budget_of_energy_where_nothing_draws_power_is_refused() -> None:
    until = UntilConfig.model_validate({"joules": "9 J"})
    with pytest.raises(UserError, match=r"run.until.joules: nothing draws power, so no energy is spent"):
        play(fleet_of(1, **NOTHING), until=until)


# What is subtracted is the energy of the run

WATTS = st.sampled_from(["0 W", "300 mW", "2 W", "7 W"])
PERIODS = st.sampled_from(["1 s", "2 s", "5 s"])
FAULTS = ("loss", "duplicate", "corrupt", "crash", "slow")


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Draw scenarios of three clients that come and go, whose frames and jobs take about a second."""
    group: dict[str, Any] = {"count": 3, "speed": "5 kFLOP/s", "up": "2 kbit/s", "down": "4 kbit/s"}
    group |= {name: draw(WATTS) for name in POWERS if name != "radio_tail"} | {"latency": "50 ms"}
    group |= {"radio_tail": draw(st.sampled_from(["0 s", "400 ms", "3 s"]))}
    group |= {"transmit_per_mbit_s": "900 W", "receive_per_mbit_s": draw(WATTS)}
    away = {"period": draw(PERIODS), "on_share": draw(st.sampled_from([0.4, 0.8, 1.0]))}
    group["availability"] = {"name": "duty_cycle", "params": away}
    pacings = ("synchronous", {"name": "synchronous", "params": {"deadline": "4 s", "late": "carry"}})
    lagged = {"name": "lagged", "params": {"concurrency": 2, "max_lag": 1}}
    participation: dict[str, Any] = {
        "client_timeout": draw(st.sampled_from(["4 s", "10 s"])),
        "on_leave": draw(st.sampled_from(["resume", "restart", "lost"])),
        "pacing": draw(st.sampled_from([*pacings, lagged])),
        "clients_per_round": 2,
    }
    faults = list[dict[str, Any]]()
    for kind in draw(st.lists(st.sampled_from(FAULTS), max_size=2, unique=True)):
        faults.append(
            {"kind": kind, "at": "2 s", "every": "7 s"} if kind in ("crash", "slow") else {"kind": kind}
        )
        faults[-1] |= dict[str, Any](factor=3) | {"for": "3 s"} if kind == "slow" else {}
        faults[-1] |= {"probability": draw(st.sampled_from([0.2, 0.6]))}
    if any(one["kind"] in ("loss", "corrupt") for one in faults) and draw(st.booleans()):
        participation["retry"] = {"times": 2, "after": "1 s"}
    return {
        "run": {"name": "metered", "rounds": draw(st.integers(1, 4)), "seed": draw(st.integers(0, 99))},
        "data": {"name": "sizes", "params": {"samples": 4, "input_shape": [8]}},
        "models": {"linear": {}},
        "training": {"lr": 0.05, "steps": 2},
        "fleet": [group],
        "participation": participation,
        "faults": faults,
        "energy": {},
        "engine": {"executor": "null"},
        "network": {"model": draw(st.sampled_from(["fluid", "naive", "none"]))},
    }


def done(scenario: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> tuple[Any, Any, Any]:
    """Return fleet, result and records of a run."""
    trace, parts = Trace(keep=True), build(load_scenario(scenario, changes or {}))
    return parts.fleet, run(parts, trace=trace), trace.kept


def joules_of(fleet: Any, result: Any) -> np.ndarray:
    """Return the energy of each client as a function of the finished run, J, ``[K]``."""
    ended_ns = round(result.simulated_s * 1e9)
    frames = result.ledger.columns()
    energy = estimated(fleet, EnergyConfig(), result.dispatches, frames, ended_ns)
    joules: np.ndarray = np.sum(list(energy.sums(result.dispatches.client(), len(fleet)).values()), axis=0)
    return joules


@given(scenarios())
def test_what_is_subtracted_is_the_energy_of_the_run(scenario: Any) -> None:
    metered = {"fleet.0.battery": {"capacity": "1 kJ"}, "run.until": {"joules": "1 MJ"}}
    fleet, result, _ = done(scenario, metered)
    joules, spent_j = joules_of(fleet, result), 1000 * (1 - result.battery_levels)
    assert result.spent_j == pytest.approx(spent_j.sum(), rel=1e-9, abs=1e-9)
    if result.drops and scenario["fleet"][0]["idle_power"] != "0 W":
        # A dispatch that was given up and comes to nothing later has waited, as far as anybody knew.
        assert (joules <= spent_j + 1e-9).all()
        spent_j = np.where(result.by_client["dropped"], joules, spent_j)
    np.testing.assert_allclose(spent_j, joules, rtol=1e-9, atol=1e-9)


@given(scenarios(), st.integers(1, 60))
def test_a_budget_of_energy_is_met_to_the_nanosecond(scenario: Any, budget_j: int) -> None:
    at_once = {"fleet.0.transmit_per_mbit_s": "0 W", "fleet.0.receive_per_mbit_s": "0 W"}
    some = {"fleet.0.compute_power": "1 W", "run.until": {"joules": f"{budget_j} J"}}
    fleet, result, _ = done(scenario, at_once | some)
    assert joules_of(fleet, result).sum() <= result.spent_j + 1e-9
    assert result.spent_j <= budget_j + 1e-6
    assert result.stopped_by is None or result.spent_j == pytest.approx(budget_j, abs=1e-6)


@given(scenarios())
def test_a_battery_that_is_large_enough_changes_nothing_but_its_own_records(scenario: Any) -> None:
    without_end = {"fleet.0.battery": {"capacity": "1 MJ"}, "run.until": {"joules": "1 MJ"}}
    _, result, trace = done(scenario, without_end | {"fleet.0.compute_power": "1 W"})
    _, plain, without = done(scenario)
    assert [record for record in trace if record[1] != "battery"] == without
    assert result.model_hash == plain.model_hash


# Levels depend on what happens alone

PHONES: Mapping[str, Any] = {
    "run": {"name": "phones", "rounds": 6},
    "data": {"name": "digits", "limit": 400},
    "models": {"linear": {}},
    "training": {"lr": 0.05, "steps": 2},
    "fleet": [
        {
            "count": 6,
            "device": "mid",
            "overhead": "2 min",
            "compute_power": "4 W",
            "radio": "lte",
            "idle_power": "500 mW",
            "availability": {"name": "duty_cycle", "params": {"period": "20 min", "on_share": 0.7}},
            "battery": {
                "capacity": {"distribution": "uniform", "low": "1 kJ", "high": "2 kJ"},
                "level": {"distribution": "uniform", "low": 0.2, "high": 1.0},
                "floor": 0.25,
                "charge_power": "1 W",
                "plugged": "away",
            },
        },
        {"count": 4, "device": "laptop"},
    ],
    "participation": {"clients_per_round": 4, "client_timeout": "10 min"},
}


def test_a_run_with_batteries_has_one_hash_however_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def result(workers: int) -> tuple[str, str, list[float]]:
        parts = build(load_scenario(PHONES, {"engine.workers": workers}))
        result = run(parts, trace=Trace())
        assert result.drops["battery empty"]
        assert result.battery_levels is not None
        return result.trace_hash, result.model_hash, result.battery_levels.tolist()

    one = result(1)
    assert str(one) == str(result(3))
    monkeypatch.setattr("fedsim.runtime.run.CohortDrivers", lambda *_: None)
    assert str(one) == str(result(2))


def test_a_level_does_not_depend_on_who_has_asked() -> None:
    battery = {
        "level": 0.1,
        "charge_power": "1 W",
        "plugged": {"name": "duty_cycle", "params": {"period": "7 s"}},
    }
    fleet = fleet_of(1, battery=battery)

    async def looked_at(times: int) -> tuple[float, bool]:
        trace = Trace()
        meter = Meter(fleet, trace, DispatchTable(trace))
        for _ in range(times):
            await clock.sleep_for(60 / times)
            ahead_s = clock.now_s() + 1000
            assert meter.available(np.array([0]), ahead_s).tolist() == [True]
        return float(meter.levels()[0]), meter.is_empty(0)

    often, once = clock.run(looked_at(40)), clock.run(looked_at(1))
    assert often[0] == pytest.approx(once[0], rel=1e-12)
    assert once[0] == pytest.approx((10 + 60 * 0.25) / 100, abs=0.02)
