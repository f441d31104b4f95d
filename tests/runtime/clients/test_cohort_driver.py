"""Where cohorts run beforehand, records, rows, log and models are the same as where the loop drives them."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.bus import Ledger
from fedsim.clock import Trace, now_s
from fedsim.errors import InvariantError, JobError
from fedsim.runtime.clients.cohort import Cohort
from fedsim.runtime.clients.shared_hook import loads_of_jobs
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario
from fedsim.wire import ModelUpdate

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

LEARNING: Mapping[str, Any] = {
    "data": {"name": "digits", "global_test": 0.8},
    "engine.executor": "threads",
    "run.rounds": 2,
}

STEADY = {"overhead": "0 s", "variation": 0.0, "latency": "10 ms"}


def result_of(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[RunResult, Trace]:
    trace = Trace(keep=True)
    return run(build(load_scenario(tables, changes)), trace=trace), trace


@contextmanager
def cohort_drivers(are_there: bool) -> Iterator[pytest.MonkeyPatch]:
    """Let the loop drive all clients, or leave things as they are; yield what patches until the end."""
    with pytest.MonkeyPatch.context() as patch:
        if not are_there:
            patch.setattr("fedsim.runtime.run.CohortDrivers", lambda *_: None)
        yield patch


def both(changes: Mapping[str, Any]) -> tuple[int, RunResult]:
    """Run with cohort drivers and without; return how many cohorts ran beforehand, and the result."""
    quick, quick_trace = result_of(SIMPLE, changes)
    with cohort_drivers(False):
        slow, slow_trace = result_of(SIMPLE, changes)
    assert not slow.cohorts
    assert quick_trace.kept == slow_trace.kept
    for name in ("trace_hash", "model_hash", "simulated_s", "drops", "rejections", "stopped_by"):
        assert getattr(quick, name) == getattr(slow, name)
    assert [str(row) for row in quick.rounds] == [str(row) for row in slow.rounds]
    for ours, theirs in ((quick.ledger, slow.ledger), (quick.dispatches, slow.dispatches)):
        for name, column in theirs.columns().items():
            np.testing.assert_array_equal(ours.columns()[name], column)
    return quick.cohorts.get("run_beforehand", 0), quick


@pytest.mark.parametrize("network", ["fluid", "naive"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "fedavg_ft"])
def test_every_round_runs_beforehand(network: str, algorithm: str) -> None:
    changes = {"network.model": network, "algorithm.name": algorithm}
    num_made, result = both(changes)
    assert num_made == result.cohorts["asked"] >= 3
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
def test_some_cohorts_of_a_fleet_that_comes_and_goes_run_beforehand(on_leave: str) -> None:
    availability = {"name": "renewal", "params": {"on": "4 s", "off": "2 s"}}
    device = {"count": 6, "device": "low", "availability": availability, "drop_out": "0.05 /s"}
    changes = {
        "fleet": [{**device, "up": "1 Mbps", "down": "1 Mbps"}, {**device, "up": "30 kbps"}],
        "participation.on_leave": on_leave,
        "participation.client_timeout": "5 s",
        "participation.clients_per_round": 2,
        "run.rounds": 60,
        "run.seed": 3,
    }
    num_made, result = both(changes)
    assert 5 <= num_made <= 50
    assert result.drops["dropped out"]


def _forgetting(far: Mapping[str, Any], near: Mapping[str, Any], at: str) -> tuple[int, RunResult]:
    """Run, as :func:`both` does, two clients, of which the forgetful one crashes at an instant."""
    crash = {"kind": "crash", "probability": 1.0, "keeps_state": False, "groups": ["forgetful"], "at": at}
    changes = {
        **LEARNING,
        "algorithm.name": "ditto",
        "fleet": [
            {"count": 1, "device": "low", "latency": "700 ms", **far},
            {"count": 1, "device": "low", **near},
        ],
        "participation.clients_per_round": 2,
        "faults": [crash],
    }
    num_made, result = both(changes)
    assert result.cohorts["asked"] == 2
    assert not result.drops  # nobody has lost work
    return num_made, result


def test_a_client_that_has_replied_forgets_while_others_are_at_work() -> None:
    ways = [_forgetting({}, {"name": "forgetful"}, at) for at in ("1 s", "100 d")]
    assert [num_made for num_made, _ in ways] == [2, 2]
    assert ways[0][1].model_hash != ways[1][1].model_hash


def test_a_client_forgets_before_a_hook_that_has_begun_beforehand(tmp_path: Path) -> None:
    """It leaves while the second dispatch is on its way, and so the loop takes the hook over."""
    file = tmp_path / "presence.csv"
    file.write_text("client,on_at_s,off_at_s\nfar,0,1.5\nfar,3,100\n")
    far = {"name": "forgetful", "availability": {"name": "trace", "params": {"file": str(file)}}}
    ways = [_forgetting(far, {}, at) for at in ("2 s", "100 d")]
    assert [num_made for num_made, _ in ways] == [1, 1]
    assert ways[0][1].model_hash != ways[1][1].model_hash


def test_what_is_in_vain_is_tried_more_and_more_seldom() -> None:
    """All devices drop out: 1, 3, 7 and then 15 cohorts are left out after each that was tried."""
    tried = 0
    original = Cohort.run_ahead

    def counting(self: Any, *given: Any) -> Any:
        nonlocal tried
        tried += 1
        return original(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cohort, "run_ahead", counting)
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
    ],
    ids=str,
)
def test_where_the_loop_drives_all(changes: Mapping[str, Any]) -> None:
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
    for are_there in (True, False):
        with cohort_drivers(are_there) as patch:
            patch.setattr("fedsim.engine.executors.null.unfitted", _fail)
            with pytest.raises(JobError) as caught:
                result_of(SIMPLE, {})
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert re.search(r"at client \d in round 1: ValueError: not today", told[0])


def _fail(job: Any) -> Any:
    raise ValueError("not today")


@pytest.mark.parametrize(
    "changes",
    [
        {"training.keep_optimiser": True, "training.momentum": 0.5},
        {"algorithm.name": "scaffold"},
        {"algorithm.name": "ditto"},
        {"algorithm.name": "fedprox", "algorithm.params.gamma": 0.5},
        {"participation.workload": {"name": "deadline_fitted", "params": {"deadline": "1 s"}}},
        {"participation.selector": {"name": "oort"}},
    ],
    ids=str,
)
def test_states_several_jobs_and_forecasts(changes: Mapping[str, Any]) -> None:
    num_driven, result = both({**LEARNING, **changes})
    assert num_driven == result.cohorts["asked"] >= 2


def test_work_of_the_server_beside_the_clients_is_recorded_in_its_turn() -> None:
    data = {**LEARNING["data"], "public": {"size": 50}}
    num_driven, result = both({**LEARNING, "data": data, "algorithm.name": "ktpfl", "run.rounds": 3})
    assert num_driven == result.cohorts["asked"] >= 3


def _hook_that_notes(fails_at: int | None = None) -> Any:
    async def train(self: Any, client: Any, state: Any, message: Any) -> Any:
        client.note("began", at_s=now_s())
        fitted = await client.fit(message.model)
        if client.client == fails_at:
            raise LookupError("the hook's own")
        client.warn("trained", at_s=now_s())
        score = await client.evaluate(fitted.model, client.own("train"))
        client.note("evaluated", at_s=now_s(), loss=score.loss)
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    return train


def _noted(changes: Mapping[str, Any], train: Any, *, verify: bool = False) -> tuple[list[Any], Any]:
    """Return the lines of the log with their instants, and how the run ended."""
    lines: list[Any] = []
    calls = Counter[tuple[int, int]]()

    async def counted(self: Any, client: Any, *given: Any) -> Any:
        calls[client.client, client.dispatch] += 1
        return await train(self, client, *given)

    class Log:
        def info(self, event: str, **values: Any) -> None:
            lines.append((now_s(), event, values))

        warning = info

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelTraining, "train", counted)
        try:
            parts = replace(build(load_scenario(SIMPLE, {**LEARNING, **changes})), verify=verify)
            end: Any = run(parts, trace=Trace(keep=verify), log=Log()).trace_hash
        except LookupError as error:
            end = str(error)
    assert set(calls.values()) <= {1, 1 + verify}  # no hook starts twice, but for a rehearsal
    return [line for line in lines if line[1] in ("began", "trained", "evaluated")], end


@pytest.mark.parametrize(
    ("changes", "fails_at"),
    [
        ({}, None),
        ({"participation.client_timeout": "30 ms"}, None),  # given up: the loop takes the hooks over
        ({"fleet.0.drop_out": "0.5 /s", "run.rounds": 6}, None),
        ({"run.until.simulated": "900 ms"}, None),
        ({}, 3),
    ],
)
def test_the_log_is_told_once_at_its_instants(changes: Mapping[str, Any], fails_at: int | None) -> None:
    ways = [_noted(changes, _hook_that_notes(fails_at))]
    with cohort_drivers(False):
        ways.append(_noted(changes, _hook_that_notes(fails_at)))
    assert ways[0] == ways[1]
    if fails_at is None:
        assert ways[0] == _noted(changes, _hook_that_notes(), verify=True)
    lines, _ = ways[0]
    assert lines
    assert all(at_s == values["at_s"] for at_s, _, values in lines)


def test_what_was_done_beforehand_is_not_done_again_by_the_loop() -> None:
    """A drop-out is known only after the durations are: the jobs of the others have been done by then."""
    fleet = [{"count": 4, "device": "low", **STEADY}, {"count": 1, "device": "low", "drop_out": "1000 /s"}]
    changes = {**LEARNING, "fleet": fleet, "algorithm.name": "ditto", "run.rounds": 1}
    done = []
    for are_there in (True, False):
        with cohort_drivers(are_there):
            parts = build(load_scenario(SIMPLE, changes))
            run(parts)
            done.append(sum(parts.executor.jobs_done["fit"].values()))
    assert done[0] <= done[1] + 2  # the two fits of the client that dropped out
    assert done[1]


def _other_loads(*given: Any) -> Any:
    return 2 * loads_of_jobs(*given)


_digests = itertools.count()


class _OtherLedger(Ledger):
    def delivered(
        self,
        sent_ns: Any,
        arrived_ns: Any,
        headers: Any,
        up: bool,
        what: Sequence[Any],
        plain_bytes: Any = None,
    ) -> None:
        kind, num_bytes, *rest = what
        super().delivered(sent_ns, arrived_ns, headers, up, (kind, num_bytes + 1, *rest), plain_bytes)


@pytest.mark.parametrize(
    ("planted", "instead", "told"),
    [
        ("cohort.loads_of_jobs", _other_loads, "record"),
        ("cohort_driver.fingerprint", lambda _: next(_digests), "the reply of client"),
        ("cohort_driver.Ledger", _OtherLedger, "column 'bytes'"),
    ],
)
def test_verify_finds_a_planted_difference(planted: str, instead: Any, told: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"fedsim.runtime.clients.{planted}", instead)
        with pytest.raises(InvariantError, match=told):
            run(replace(build(load_scenario(SIMPLE, LEARNING)), verify=True), trace=Trace(keep=True))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fleet.0.drop_out": "0.5 /s", "run.rounds": 6},
        {**LEARNING, "algorithm.name": "scaffold"},
    ],
)
def test_under_verify_the_loop_drives_what_would_have_run_beforehand(changes: Mapping[str, Any]) -> None:
    plain, verified = (
        run(replace(build(load_scenario(SIMPLE, changes)), verify=verify), trace=Trace(keep=verify))
        for verify in (False, True)
    )
    assert plain.cohorts == verified.cohorts
    assert plain.cohorts["run_beforehand"]
    assert (plain.trace_hash, plain.model_hash) == (verified.trace_hash, verified.model_hash)


@pytest.mark.parametrize("error", [LookupError("lost"), asyncio.CancelledError()])
def test_a_hook_that_raises_ends_the_run_as_on_the_loop(error: BaseException) -> None:
    async def train(self: Any, client: Any, state: Any, message: Any) -> Any:
        await client.fit(message.model)
        if client.client == 3:
            raise error
        return state, ModelUpdate.of(message.model, num_samples=client.num_samples())

    ends: list[tuple[str | None, list[Any]]] = []
    changes = {**LEARNING, "participation.client_timeout": "9 s"}
    for are_there in (True, False):
        with cohort_drivers(are_there) as patch:
            patch.setattr(ModelTraining, "train", train)
            trace = Trace(keep=True)
            try:
                run(build(load_scenario(SIMPLE, changes)), trace=trace)
                ends.append((None, trace.kept))
            except LookupError as raised:
                ends.append((str(raised), trace.kept))
    assert ends[0] == ends[1]


def test_memory_is_bounded_by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of one tile have ended before those of the next begin; the result is the same."""
    whole = both(LEARNING)[1]
    monkeypatch.setattr("fedsim.runtime.clients.cohort.MAX_TILE", 2)
    num_driven, tiled = both(LEARNING)
    assert num_driven == 2
    assert (tiled.trace_hash, tiled.model_hash) == (whole.trace_hash, whole.model_hash)
