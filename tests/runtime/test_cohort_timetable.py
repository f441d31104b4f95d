"""With timetables a run gives the same records, rows and models as without."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.clock import Trace
from fedsim.errors import JobError
from fedsim.runtime.cohort_timetable import CohortTimetables
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

SIMPLE: Mapping[str, Any] = {
    "run": {"name": "timetables", "rounds": 3},
    "data": {"name": "sizes", "params": {"samples": 20, "input_shape": [8]}},
    "models": {"linear": {}},
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.05, "batch_size": 5, "epochs": 1},
    "fleet": [{"count": 4, "device": "low"}, {"count": 4, "device": "high"}],
    "participation": {"clients_per_round": 5},
    "engine": {"executor": "null"},
    "evaluation": {"every": 0},
}

STEADY = {"overhead": "0 s", "variation": 0.0, "latency": "10 ms"}


def result_of(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[RunResult, Trace]:
    trace = Trace(keep=True)
    return run(build(load_scenario(tables, changes)), trace=trace), trace


def both(changes: Mapping[str, Any], tables: Mapping[str, Any] = SIMPLE) -> tuple[int, RunResult]:
    """Run with and without timetables; return how many were made, and the result."""
    made = list[bool]()
    original = CohortTimetables.of

    def noting(self: Any, *given: Any) -> Any:
        timetable = original(self, *given)
        made.append(timetable is not None)
        return timetable

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CohortTimetables, "of", noting)
        quick, quick_trace = result_of(tables, changes)
        patch.setattr("fedsim.runtime.run.cohort_timetables", lambda *_: None)
        slow, slow_trace = result_of(tables, changes)
    assert quick_trace.kept == slow_trace.kept
    for name in ("trace_hash", "model_hash", "simulated_s", "drops", "rejections", "stopped_by"):
        assert getattr(quick, name) == getattr(slow, name)
    assert [str(row) for row in quick.rounds] == [str(row) for row in slow.rounds]
    for ours, theirs in ((quick.ledger, slow.ledger), (quick.dispatches, slow.dispatches)):
        for name, column in theirs.columns().items():
            np.testing.assert_array_equal(ours.columns()[name], column)
    return sum(made), quick


@pytest.mark.parametrize("network", ["fluid", "naive"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedavg_ft"])
def test_every_round_has_one(network: str, algorithm: str) -> None:
    changes = {"network.model": network, "algorithm.name": algorithm}
    num_made, result = both(changes)
    assert num_made == 3
    assert result.dispatches.counts["merged"] >= 15


def test_models_are_those_of_a_run_that_trains() -> None:
    sizes = {"name": "two_class_lognormal", "params": {"least": 1, "sigma": 1.0}}
    digits = {"name": "digits", "global_test": 0.2, "partition": sizes}
    changes = {"data": digits, "engine.executor": "threads", "evaluation.every": 2}
    num_made, result = both(changes)
    assert num_made == 3
    assert result.rounds[-1].accuracy is not None


RATES = st.sampled_from(["10 kbps", "20 kbps", "1 Mbps", "1 Gbps"])


@given(
    rates=st.lists(RATES, min_size=2, max_size=3),
    latency=st.sampled_from(["0 s", "10 ms", "1 s"]),
    server=RATES,
    variation=st.sampled_from([0.0, 0.5]),
    network=st.sampled_from(["fluid", "naive"]),
    per_round=st.integers(1, 9),
    samples=st.sampled_from([20, {"distribution": "uniform", "low": 4, "high": 6}]),
)
def test_any_fleet(
    rates: list[str], latency: str, server: str, variation: float, network: str, per_round: int, samples: Any
) -> None:
    device = {"device": "low", "count": 3, "latency": latency, "variation": variation, "overhead": "0 s"}
    changes = {
        "fleet": [
            {**device, "up": rate, "down": other} for rate, other in zip(rates, rates[::-1], strict=True)
        ],
        "server.up": server,
        "server.down": server,
        "network.model": network,
        "participation.clients_per_round": min(per_round, 3 * len(rates)),
        "data.params.samples": samples,
        "run.rounds": 2,
    }
    both(changes)


def test_a_lease_that_ends_with_the_last_reply_is_long_enough() -> None:
    fleet = [{"count": 3, "device": "low", **STEADY}, {"count": 1, "device": "low", **STEADY, "up": "9 kbps"}]
    changes = {"fleet": fleet, "participation.clients_per_round": 4, "run.rounds": 1}
    num_made, result = both(changes)
    last_ns = int(result.dispatches.turnaround_ns().max())
    for lease_ns, expected in ((last_ns, (1, 0)), (last_ns - 1, (0, 1))):
        changes["participation.client_timeout"] = f"{lease_ns} ns"
        num_made, result = both(changes)
        assert (num_made, sum(result.drops.values())) == expected


@pytest.mark.parametrize("on_leave", ["lost", "resume", "restart"])
def test_some_cohorts_of_a_fleet_that_comes_and_goes_have_one(on_leave: str) -> None:
    availability = {"name": "renewal", "params": {"on": "4 s", "off": "2 s"}}
    device = {"count": 6, "device": "low", "availability": availability, "drop_out": "0.05 /s"}
    changes = {
        "fleet": [{**device, "up": "1 Mbps", "down": "1 Mbps"}, {**device, "up": "30 kbps"}],
        "participation.on_leave": on_leave,
        "participation.client_timeout": "5 s",
        "participation.clients_per_round": 2,
        "run.rounds": 60,
    }
    num_made, result = both(changes)
    assert 5 <= num_made <= 50
    assert result.drops["dropped out"]


def test_what_is_in_vain_is_tried_more_and_more_seldom() -> None:
    """All devices drop out: 1, 3, 7 and then 15 cohorts are left out after each that was tried."""
    tried = 0
    original = CohortTimetables._made

    def counting(self: Any, *given: Any) -> Any:
        nonlocal tried
        tried += 1
        return original(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CohortTimetables, "_made", counting)
        both({"fleet.0.drop_out": "1000 /s", "fleet.1.drop_out": "1000 /s", "run.rounds": 40})
    assert tried == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"network.model": "none"},
        {"participation.pacing.params.deadline": "1 h"},
        {"participation.pacing.params.over_selection": 1.4},
        {"participation.pacing": {"name": "buffered", "params": {"buffer": 2, "concurrency": 4}}},
        {"run.until.bytes": "20 kB"},
        {"training.keep_optimiser": True, "training.momentum": 0.5},
        {"algorithm.name": "scaffold"},
        {"algorithm.name": "fedprox", "algorithm.params.gamma": 0.5},
    ],
    ids=str,
)
def test_where_there_is_none(changes: Mapping[str, Any]) -> None:
    num_made, _ = both(changes)
    assert num_made == 0


@pytest.mark.parametrize("share", [0.3, 1.0, 1.5])
def test_a_budget_of_time_ends_the_run_where_it_would(share: float) -> None:
    """In the middle of the first cohort, with its last reply, and in the middle of the second one."""
    _, whole = both({})
    at_s = share * whole.rounds[0].ended_at_s
    num_made, result = both({"run.until.simulated": f"{round(at_s * 1e9)} ns"})
    assert result.stopped_by == "simulated"
    assert num_made == int(share > 1)


def test_events_of_both_links_at_one_instant_take_their_turns() -> None:
    """The first client's reply arrives just when the second one's download does."""
    fleet = [
        {"count": 1, "device": "low", **STEADY, "latency": "0 s", "speed": "1 PFLOP/s"},
        {"count": 1, "device": "low", **STEADY, "latency": "0 s", "down": "100 kbps"},
    ]
    changes: dict[str, Any] = {"fleet": fleet, "participation.clients_per_round": 2, "network.model": "naive"}
    changes |= {"network.overhead.protocol": "none", "run.rounds": 1}
    fleet[0] |= {"down": "1 Gbps", "up": "1 Gbps"}
    assert both(changes)[0] == 1
    _, result = both(changes)
    sent = result.ledger.columns()
    down_bytes, up_bytes = int(sent["bytes"][0]), int(sent["bytes"][-1])
    job_ns = int(result.dispatches.phase_ns("compute")[0])
    # 100 kbit/s take 80 us for a byte: the first client's frames get what its job leaves of that.
    left_ns = 80_000 * down_bytes - job_ns
    fleet[0] |= {"down": f"{8e9 * down_bytes * 2 / left_ns} bps", "up": f"{8e9 * up_bytes * 2 / left_ns} bps"}
    num_made, result = both(changes)
    arrived_s = result.ledger.columns()["arrived_at_s"]
    assert arrived_s[1] == arrived_s[2]
    assert num_made == 0


def test_a_fit_that_fails_is_told_as_ever() -> None:
    told = []
    for patched in ({}, {"fedsim.runtime.run.cohort_timetables": lambda *_: None}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fedsim.engine.executors.null.unfitted", _fail)
            for name, instead in patched.items():
                patch.setattr(name, instead)
            with pytest.raises(JobError) as caught:
                result_of(SIMPLE, {})
            told.append(str(caught.value))
    assert told[0] == told[1]
    assert re.search(r"at client \d in round 1: ValueError: not today", told[0])


def _fail(job: Any) -> Any:
    raise ValueError("not today")
