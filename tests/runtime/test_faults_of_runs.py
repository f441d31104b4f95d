"""Runs with faults of the network: counted by kind, and equal for any number of workers."""

from collections import Counter
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from fedsim.clock import Trace
from fedsim.errors import UserError
from fedsim.network.fault_settings import FATAL
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run
from fedsim.scenario import Scenario, build

KINDS: dict[str, dict[str, Any]] = {
    "loss": {"probability": 0.3},
    "duplicate": {"probability": 0.3},
    "delay": {"probability": 0.3, "delay": "5 s"},
    "corrupt": {"probability": 0.3},
    "partition": {"at": "3 s", "for": "1 s", "every": "8 s"},
    "crash": {"at": "1 s", "every": "2 s", "probability": 0.3},
    "slow": {"factor": 4, "at": "1 s", "for": "2 s", "every": "3 s", "probability": 0.3},
}
PACINGS: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "buffered": {"concurrency": 5, "buffer": 2},
    "immediate": {"concurrency": 5},
    "lagged": {"concurrency": 5, "max_lag": 2},
}


def done(
    *faults: dict[str, Any],
    pacing: str = "synchronous",
    workers: int = 1,
    verify: bool = False,
    retry: dict[str, Any] | None = None,
    algorithm: str = "fedavg",
) -> tuple[RunResult, Trace]:
    scenario = {
        "run": {"rounds": 10, "seed": 5},
        "data": {"name": "digits", "limit": 200, "global_test": 0.1},
        "models": {"linear": {}},
        "algorithm": {"name": algorithm},
        "fleet": [
            {"count": 5, "device": "high", "up": "20 kbit/s", "name": "near"},
            {"count": 3, "device": "low", "up": "10 kbit/s"},
        ],
        "participation": {
            "clients_per_round": 4,
            "client_timeout": "30 s",
            "pacing": {"name": pacing, "params": PACINGS[pacing]},
            **({} if retry is None else {"retry": retry}),
        },
        "engine": {"workers": workers},
        "faults": list(faults),
    }
    parts = replace(build(Scenario.model_validate(scenario)), verify=verify)
    trace = Trace(BytesIO(), keep=True)
    return run(parts, trace=trace), trace


@pytest.mark.parametrize("pacing", PACINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_the_same_hashes_for_any_number_of_workers(kind: str, pacing: str) -> None:
    results = [
        done({"kind": kind, **KINDS[kind]}, pacing=pacing, workers=workers, verify=workers == 4)[0]
        for workers in (1, 2, 4)
    ]
    assert len({(one.trace_hash, one.model_hash) for one in results}) == 1
    assert set(results[0].faults) == {kind}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_that_never_strikes_changes_nothing(kind: str) -> None:
    never = {"at": "100 d"} if kind in ("partition", "crash") else KINDS[kind] | {"probability": 0.0}
    sound, spared = done()[0], done({"kind": kind, **never})[0]
    assert (spared.trace_hash, spared.model_hash) == (sound.trace_hash, sound.model_hash)
    assert not spared.faults
    assert spared.cohorts == sound.cohorts  # those that are run beforehand still are


def test_a_duplicate_changes_counts_alone() -> None:
    sound, twice = done()[0], done({"kind": "duplicate", "probability": 1.0})[0]
    assert twice.model_hash == sound.model_hash
    assert twice.simulated_s == sound.simulated_s
    assert twice.totals == sound.totals
    assert twice.faults["duplicate"] == len(twice.ledger)
    assert set(twice.ledger.columns()["arrivals"]) == {2}
    assert {name: counts.tolist() for name, counts in twice.by_client.items()} == {
        name: counts.tolist() for name, counts in sound.by_client.items()
    }


def test_what_does_not_arrive_is_counted_by_its_kind() -> None:
    faults = [{"kind": kind, **KINDS[kind]} for kind in ("loss", "corrupt", "partition")]
    result, trace = done(*faults)
    shown = Counter(record[-1] for record in trace.kept if record[1] == "fault")
    assert result.faults == shown
    assert set(shown) == FATAL
    # A dispatch whose frame does not arrive is dropped when its lease ends, for that reason.
    assert result.drops == shown
    outcomes = result.ledger.outcomes()
    assert outcomes["undecodable"] == shown["corrupt"]
    assert outcomes["lost"] == shown["loss"] + shown["partition"]
    assert outcomes["delivered"] == len(result.ledger) - shown.total()
    merged = Counter(
        key for record in trace.kept if record[1] == "merge" for key in zip(record[5], record[6], strict=True)
    )
    assert set(merged.values()) == {1}


def test_a_crash_ends_what_a_client_is_at() -> None:
    result, trace = done({"kind": "crash", **KINDS["crash"]})
    crashed = {record[2:4] for record in trace.kept if record[1] == "fault"}
    gave_up = {record[2:4] for record in trace.kept if record[1] == "abandon"}
    assert crashed == gave_up
    assert result.faults == {"crash": len(crashed)}
    assert result.drops == {"crash": len(crashed)}
    assert all(record[0] % (2 * 10**9) == 10**9 for record in trace.kept if record[1] == "fault")


def test_a_slow_device_computes_longer_and_learns_the_same() -> None:
    slow = {"kind": "slow", "factor": 4, "groups": ["low"]}
    sound, result = done()[0], done(slow)[0]
    assert result.model_hash == sound.model_hash
    columns, usual = result.dispatches.columns(), sound.dispatches.columns()
    of_slow = columns["client"] >= 5
    np.testing.assert_allclose(columns["compute_s"], usual["compute_s"] * np.where(of_slow, 4, 1), atol=1e-8)
    assert result.faults == {"slow": np.count_nonzero(of_slow)}


@pytest.mark.parametrize("algorithm", ["ditto", "apfl"])
def test_a_client_that_forgets_goes_on_from_the_state_that_it_joined_with(algorithm: str) -> None:
    crash = {"kind": "crash", "at": "4 s", "probability": 1.0}
    results = [
        done({**crash, "keeps_state": keeps}, algorithm=algorithm, workers=workers, verify=workers == 2)[0]
        for keeps, workers in ((True, 1), (False, 1), (False, 2))
    ]
    assert results[1].model_hash == results[2].model_hash != results[0].model_hash
    assert results[0].trace_hash != results[1].trace_hash  # of the evaluations alone
    # A crash after the end changes nothing.
    late = done({**crash, "at": "100 d", "keeps_state": False}, algorithm=algorithm)[0]
    assert late.model_hash == done(algorithm=algorithm)[0].model_hash


RETRY = {"times": 9, "after": "2 s"}


@pytest.mark.parametrize("pacing", PACINGS)
def test_what_is_sent_again_arrives_in_the_end(pacing: str) -> None:
    faults = [{"kind": kind, **KINDS[kind]} for kind in ("loss", "corrupt", "partition")]
    results = [
        done(*faults, pacing=pacing, workers=workers, verify=workers == 4, retry=RETRY)[0]
        for workers in (1, 4)
    ]
    assert len({(one.trace_hash, one.model_hash) for one in results}) == 1
    result = results[0]
    # Bytes that are sent again count again; clients train once.
    assert sum(result.faults.values()) > 10
    assert len(result.ledger) > 2 * result.by_client["merged"].sum()
    assert not set(result.drops) & FATAL
    assert not result.rejections


def test_a_frame_is_sent_again_so_long_after_it_has_left_and_not_more_often_than_that() -> None:
    lost = {"kind": "loss", "probability": 1.0, "direction": "up", "groups": ["near"]}
    result, trace = done(lost, retry={"times": 2, "after": "3 s"})
    by_dispatch: dict[Any, list[tuple[int, str]]] = {}
    for at_ns, kind, client, dispatch, up, *_ in (one for one in trace.kept if one[1].startswith("transfer")):
        if client < 5 and up:
            by_dispatch.setdefault((client, dispatch), []).append((at_ns, kind))
    assert by_dispatch
    for events in by_dispatch.values():
        assert [kind for _, kind in events] == ["transfer_start", "transfer_end"] * 3
        at_ns = [at_ns for at_ns, _ in events]
        assert at_ns[2] - at_ns[1] == at_ns[4] - at_ns[3] == 3 * 10**9
    assert result.drops == {"loss": len(by_dispatch)}
    jobs = Counter(record[2:4] for record in trace.kept if record[1] == "job_start")
    assert set(jobs.values()) == {1}


def test_copies_of_a_spoilt_frame_are_sent_again_once() -> None:
    faults = [{"kind": "corrupt", "probability": 0.4}, {"kind": "duplicate", "probability": 1.0}]
    result, trace = done(*faults, retry=RETRY, verify=True)
    assert len([one for one in trace.kept if one[1] == "retry"]) == result.faults["corrupt"]
    assert not result.drops


def test_faults_are_for_groups_and_labels() -> None:
    result, trace = done({"kind": "loss", "probability": 1.0, "groups": ["low"], "direction": "down"})
    struck = {record[2] for record in trace.kept if record[1] == "fault"}
    assert struck <= set(range(5, 8))
    assert {record[4] for record in trace.kept if record[1] == "fault"} == {False}
    assert result.by_client["merged"][5:].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "seldom",
    [
        {"kind": "loss", "probability": 0.03},
        {"kind": "slow", "factor": 4, "at": "1 s", "for": "2 s"},
    ],
)
def test_a_cohort_that_is_not_struck_is_still_run_beforehand(seldom: dict[str, Any]) -> None:
    result, _ = done(seldom)
    assert 0 < result.cohorts["run_beforehand"] < result.cohorts["asked"]


def test_who_loses_nothing_has_nothing_to_send_again() -> None:
    with pytest.raises(UserError, match="no fault of the network keeps a frame from arriving"):
        done({"kind": "duplicate", "probability": 0.5}, retry=RETRY)


@pytest.mark.parametrize(
    ("fault", "changes", "problem"),
    [
        ({"kind": "loss", "probability": 0.1, "groups": ["nera"]}, {}, "of a group or label 'nera'"),
        ({"kind": "partition", "at": "2 h"}, {"simulated": "1 h"}, "the run has ended by then"),
    ],
)
def test_what_no_run_can_have_is_a_fault(fault: Any, changes: Any, problem: str) -> None:
    scenario = {
        "run": {"rounds": 1, "until": changes} if changes else {"rounds": 1},
        "data": {"name": "digits", "limit": 200},
        "fleet": [{"count": 2, "name": "near"}],
        "faults": [fault],
    }
    with pytest.raises(UserError, match=problem):
        build(Scenario.model_validate(scenario))
