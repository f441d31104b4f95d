"""Any fleet, network and policy together: a run ends, keeps its promises and repeats itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.clock import Trace
from fedsim.errors import RunError
from fedsim.report import tables
from fedsim.report.cost_breakdown import breakdown
from fedsim.report.run_columns import TRAFFIC
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import Scenario, build

SECONDS = st.integers(1, 400).map(lambda n: f"{n / 10} s")
TRACE = str(Path(__file__).parents[1] / "scenarios" / "bandwidth_traces.csv")


def group(draw: Any, number: int, network: str) -> dict[str, Any]:
    """Return a group of unequal devices that may come and go, with links that may follow a trace."""
    made: dict[str, Any] = {
        "name": f"group {number}",
        "count": draw(st.integers(1, 6)),
        "device": draw(st.sampled_from(["low", "mid", "high"])),
        "latency": f"{draw(st.integers(0, 500))} ms",
        "up": f"{draw(st.integers(1, 1000))} kbit/s",
        "drop_out": draw(st.sampled_from(["0 /s", "0.01 /s", "0.3 /s"])),
        # Slow enough that work, leases and deadlines meet.
        "speed": f"{draw(st.integers(1, 50))} kFLOP/s",
    }
    model = draw(st.sampled_from(["always", "duty_cycle", "renewal", "diurnal"]))
    params = {
        "duty_cycle": {"period": "20 s", "on_share": 0.6},
        "renewal": {"on": "15 s", "off": "10 s"},
        "diurnal": {"share": 0.5, "keeps": "10 s"},
    }.get(model, {})
    if network == "fluid" and draw(st.booleans()):
        made["down_trace"] = {"file": TRACE, "shift": draw(st.booleans())}
    return made | {"availability": {"name": model, "params": params}}


@st.composite
def scenarios(draw: Any) -> dict[str, Any]:
    pacing: dict[str, Any] = {
        "over_selection": draw(st.sampled_from([1.0, 1.3, 2.0])),
        "min_replies": draw(st.integers(1, 3)),
        "on_failure": draw(st.sampled_from(["skip", "skip", "skip", "repeat", "stop"])),
    }
    deadline = draw(st.sampled_from(["none", "fixed", "quantile"]))
    if deadline == "fixed":
        pacing["deadline"] = draw(SECONDS)
    elif deadline == "quantile":
        pacing["deadline_quantile"] = draw(st.floats(0.1, 1.0))
    if deadline != "none":
        pacing["late"] = draw(st.sampled_from(["drop", "carry"]))
    if draw(st.booleans()):
        pacing["interval"] = draw(SECONDS)
    network = draw(st.sampled_from(["fluid", "naive", "none"]))
    groups = [group(draw, number, network) for number in range(draw(st.integers(1, 3)))]
    learns = draw(st.sampled_from((False,) * 5 + (True,)))
    few = draw(st.integers(1, 40))
    sizes = draw(st.sampled_from([few, {"distribution": "uniform", "low": few, "high": few + 30}]))
    unlearned = {"name": "sizes", "params": {"samples": sizes, "input_shape": [6]}}
    algorithm = draw(st.sampled_from(["fedavg", "fedmd", "local", "fedavg_ft", "dsfl"]))
    selectors = ["uniform", "by_size", "least_available"]
    if algorithm != "local":  # whose clients tell no loss
        selectors += ["power_of_choice", "oort"]
    return {
        "run": {"rounds": draw(st.integers(1, 3)), "seed": draw(st.integers(0, 99))},
        "data": ({"limit": 200} if learns else unlearned) | {"public": {"size": 12}},
        "models": {"linear": {}},
        # Exchanges with all clients: each round's of "local", the last of "fedavg_ft", the first of "dsfl".
        "algorithm": {"name": algorithm},
        "training": {"batch_size": 8},
        "fleet": groups,
        "server": {"up": "200 kbit/s", "down": "200 kbit/s"},
        "network": {"model": network},
        "participation": {
            "clients_per_round": draw(st.integers(1, sum(one["count"] for one in groups))),
            "client_timeout": draw(SECONDS),
            "on_leave": draw(st.sampled_from(["resume", "restart", "lost"])),
            "pacing": {"name": "synchronous", "params": pacing},
            "selector": draw(st.sampled_from(selectors)),
        },
        "engine": {"executor": "threads" if learns else "null"},
    }


def check_sums(result: RunResult) -> None:
    """Check that the table of rounds sums to what the summary says."""
    columns, summary = tables.rounds(result), breakdown(result)
    sums = {name: sum(values) for name, values in columns.items() if values.dtype in (np.int32, np.int64)}
    outcomes = ("asked", "merged", "dropped", "rejected", "late")
    whole = {name: summary["participation"][name] for name in outcomes}
    whole |= {f"dropped_{cause.replace(' ', '_')}": many for cause, many in summary["drops_by_cause"].items()}
    whole |= {name: getattr(result.totals, name) for name in TRAFFIC}
    whole["wasted_bytes"] = summary["bytes"]["wasted"]
    assert {name: sums[name] for name in whole} == whole
    for name, spent_s in summary["time"].items():
        assert sum(columns[name]) == pytest.approx(spent_s)
    numbers = [row.round for row in result.rounds]
    assert numbers == sorted(set(numbers))


def outcome(document: dict[str, Any], workers: int) -> tuple[str, str]:
    """Run under every check there is; return the trace's hash and the models', or why the run ended."""
    document = document | {"engine": {**document["engine"], "workers": workers}}
    trace = Trace(keep=True)
    try:
        result = run(replace(build(Scenario.model_validate(document)), verify=True), trace=trace)
    except RunError as error:
        if type(error) is not RunError:  # a deadlock, a broken promise, a failed job
            raise
        return trace.hash(), str(error)
    check_sums(result)
    return result.trace_hash, result.model_hash


@settings(max_examples=settings().max_examples // 2)
@given(document=scenarios())
def test_every_run_keeps_its_promises_and_repeats_itself(document: dict[str, Any]) -> None:
    assert outcome(document, workers=1) == outcome(document, workers=2)


@pytest.mark.slow
@settings(max_examples=settings().max_examples * 4 // 3)
@given(document=scenarios())
def test_so_does_each_of_many_runs(document: dict[str, Any]) -> None:
    assert outcome(document, workers=1) == outcome(document, workers=2)


PACINGS: dict[str, dict[str, Any]] = {
    "all": {},
    # Six are invited where four are wanted, and all answer at the same instant.
    "over-selection": {"pacing": {"over_selection": 1.5}, "clients_per_round": 4},
    "deadline": {"pacing": {"deadline": "{round_s} s"}},
    "quantile": {"pacing": {"deadline_quantile": 1.0}},
    # Every second round finds nobody to ask, and waits for those of the round before.
    "carry": {"pacing": {"deadline": "{early_s} s", "late": "carry"}, "rounds": 6},
    "repeat": {"pacing": {"deadline": "{early_s} s", "late": "carry", "on_failure": "repeat"}},
    "interval": {"pacing": {"interval": "{long_s} s"}},
    "all at once": {
        "pacing": {
            "over_selection": 1.5,
            "deadline": "{round_s} s",
            "interval": "{long_s} s",
            "min_replies": 6,
            "on_failure": "stop",
        },
        "clients_per_round": 4,
    },
}


def learning(
    pacing: dict[str, Any], *, workers: int = 1, rounds: int = 3, client_timeout: str = "2 h", **more: Any
) -> RunResult:
    """Train FedAvg on digits, with the devices of one class, equal to the last bit unless changed."""
    equal = {"speed": "1 MFLOP/s", "up": "1 Mbit/s", "down": "1 Mbit/s", "variation": 0}
    participation = {"pacing": {"name": "synchronous", "params": pacing}, "client_timeout": client_timeout}
    participation |= {name: more.pop(name) for name in ("clients_per_round",) if name in more}
    document = {
        "run": {"rounds": rounds},
        "data": {"limit": 240, "partition": {"name": "iid"}},
        "models": {"linear": {}},
        "training": {"lr": 0.1, "batch_size": 16},
        "fleet": [{"count": 6, **equal, **more}],
        "participation": participation,
        "evaluation": {"every": rounds},
        "engine": {"workers": workers},
    }
    return run(build(Scenario.model_validate(document)))


@pytest.fixture(scope="module")
def plain() -> RunResult:
    """All clients, and no policy at all."""
    return learning({})


def timed(pacing: dict[str, Any], result: RunResult) -> dict[str, Any]:
    """Return settings with the times of a run's rounds put in."""
    round_s = result.rounds[0].ended_at_s
    times = {"round_s": round_s, "early_s": 0.6 * round_s, "long_s": 3 * round_s}
    return {
        name: value.format(**times) if isinstance(value, str) else value for name, value in pacing.items()
    }


@pytest.mark.parametrize("name", PACINGS)
def test_without_heterogeneity_every_pacing_over_all_clients_gives_the_same_models(
    name: str, plain: RunResult
) -> None:
    settings = PACINGS[name]
    result = learning(**{**settings, "pacing": timed(settings.get("pacing", {}), plain)})
    assert result.model_hash == plain.model_hash
    assert not result.drops
    assert [row.merged for row in result.rounds if row.merged] == [6, 6, 6]
    # Where a policy changes when things happen, it was at work; the others are shown to be below.
    assert (result.trace_hash != plain.trace_hash) == (name in ("carry", "interval", "all at once"))


def test_they_are_at_work_there(plain: RunResult) -> None:
    # A deadline at the end of the round is met by all, and one that is a microsecond earlier by nobody.
    early = learning({"deadline": f"{plain.rounds[0].ended_at_s - 1e-6} s"})
    assert [row.drops for row in early.rounds] == [{"round failed": 6}] * 3
    assert early.model_hash != plain.model_hash
    # Without over-selection four are asked.
    four = learning({}, clients_per_round=4)
    assert [(row.asked, row.merged) for row in four.rounds] == [(4, 4)] * 3
    assert four.model_hash != plain.model_hash
    # A round that fails for want of replies is repeated at once, and counts once.
    repeated = learning(timed(PACINGS["repeat"]["pacing"], plain))
    assert [(row.asked, row.merged) for row in repeated.rounds] == [(6, 6)] * 3
    carried = learning(timed(PACINGS["carry"]["pacing"], plain), rounds=6)
    assert [(row.asked, row.merged) for row in carried.rounds] == [(6, 0), (0, 6)] * 3


def test_deadlines_over_selection_and_drop_outs_do_not_depend_on_workers() -> None:
    unequal: dict[str, Any] = {
        "speed": {"distribution": "lognormal", "median": "100 kFLOP/s", "sigma": 1.0},
        "variation": 0.3,
        "drop_out": "0.3 /s",
        "clients_per_round": 3,
        "availability": {"name": "renewal", "params": {"on": "10 s", "off": "2 s"}},
    }

    def hashes(over_selection: float, workers: int) -> tuple[str, str]:
        pacing = {"over_selection": over_selection, "deadline": "0.6 s", "late": "carry"}
        result = learning(pacing, workers=workers, rounds=8, client_timeout="3 s", **unequal)
        assert result.drops["dropped out"] > 0
        assert sum(row.merged for row in result.rounds) > 8
        return result.trace_hash, result.model_hash

    found = [hashes(1.5, workers) for workers in (1, 2, 4, 16)]
    assert found == found[:1] * 4
    trace_hash, model_hash = hashes(1.0, 1)
    assert trace_hash != found[0][0]
    assert model_hash != found[0][1]
