"""Any fleet, network and policy together: a run ends, keeps its promises and repeats itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import RunError
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import Scenario, build

SECONDS = st.integers(1, 400).map(lambda n: f"{n / 10} s")


def group(draw: Any, number: int) -> dict[str, Any]:
    """Return a group of unequal devices that may come and go."""
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
    model = draw(st.sampled_from(["always", "duty_cycle", "renewal"]))
    params = {
        "duty_cycle": {"period": "20 s", "on_share": 0.6},
        "renewal": {"on": "15 s", "off": "10 s"},
    }.get(model, {})
    return made | {"availability": {"name": model, "params": params}}


@st.composite
def scenarios(draw: Any) -> dict[str, Any]:
    pacing: dict[str, Any] = {
        "over_selection": draw(st.sampled_from([1.0, 1.3, 2.0])),
        "min_replies": draw(st.integers(1, 3)),
        "on_failure": draw(st.sampled_from(["skip", "repeat", "stop"])),
    }
    deadline = draw(st.sampled_from(["none", "fixed", "quantile"]))
    if deadline == "fixed":
        pacing["deadline"] = draw(SECONDS)
    elif deadline == "quantile":
        pacing["deadline_quantile"] = draw(st.floats(0.1, 1.0))
    if deadline != "none":
        pacing["late"] = draw(st.sampled_from(["drop", "carry"]))
    groups = [group(draw, number) for number in range(draw(st.integers(1, 3)))]
    return {
        "run": {"rounds": draw(st.integers(1, 3)), "seed": draw(st.integers(0, 99))},
        "data": {
            "name": "sizes",
            "params": {"samples": draw(st.integers(1, 40)), "input_shape": [6]},
            "public": {"size": 12},
        },
        "models": {"linear": {}},
        "algorithm": {"name": draw(st.sampled_from(["fedavg", "fedmd", "local"]))},
        "training": {"batch_size": 8},
        "fleet": groups,
        "server": {"up": "200 kbit/s", "down": "200 kbit/s"},
        "network": {"model": draw(st.sampled_from(["fluid", "naive", "none"]))},
        "participation": {
            "clients_per_round": draw(st.integers(1, sum(one["count"] for one in groups))),
            "client_timeout": draw(SECONDS),
            "on_leave": draw(st.sampled_from(["resume", "restart", "lost"])),
            "pacing": {"name": "synchronous", "params": pacing},
        },
        "engine": {"executor": "null"},
    }


def outcome(document: dict[str, Any]) -> tuple[str, str] | str:
    """Run under every check there is; return the hashes, or why the run ended."""
    try:
        result = run(replace(build(Scenario.model_validate(document)), verify=True))
    except RunError as error:
        if type(error) is not RunError:  # a deadlock, a broken promise, a failed job
            raise
        return str(error)
    return result.trace_hash, result.model_hash


@settings(max_examples=60)
@given(document=scenarios())
def test_every_run_keeps_its_promises_and_repeats_itself(document: dict[str, Any]) -> None:
    assert outcome(document) == outcome(document)


PACINGS: dict[str, dict[str, Any]] = {
    "all": {},
    "over-selection": {"over_selection": 1.5},
    "deadline": {"deadline": "1 h"},
    "carry": {"deadline": "1 h", "late": "carry"},
    "quantile": {"deadline_quantile": 1.0},
    "all at once": {"over_selection": 2.0, "deadline": "1 h", "min_replies": 3, "on_failure": "stop"},
}


def learning(pacing: dict[str, Any], workers: int = 1, **fleet: Any) -> RunResult:
    """Train FedAvg on digits, with the devices of one class, equal to the last bit unless changed."""
    equal = {"speed": "1 MFLOP/s", "up": "1 Mbit/s", "down": "1 Mbit/s", "variation": 0}
    document = {
        "run": {"rounds": 3},
        "data": {"limit": 240, "partition": {"name": "iid"}},
        "models": {"linear": {}},
        "training": {"lr": 0.1, "batch_size": 16},
        "fleet": [{"count": 6, **equal, **fleet}],
        "participation": {"pacing": {"name": "synchronous", "params": pacing}, "client_timeout": "2 h"},
        "evaluation": {"every": 3},
        "engine": {"workers": workers},
    }
    return run(build(Scenario.model_validate(document)))


@pytest.mark.parametrize("name", PACINGS)
def test_without_heterogeneity_every_pacing_over_all_clients_gives_the_same_models(name: str) -> None:
    assert learning(PACINGS[name]).model_hash == learning({}).model_hash


def test_deadlines_over_selection_and_drop_outs_do_not_depend_on_workers() -> None:
    pacing = {"over_selection": 1.5, "deadline": "0.6 s", "late": "carry"}
    fleet = {
        "speed": {"distribution": "lognormal", "median": "100 kFLOP/s", "sigma": 1.0},
        "variation": 0.3,
        "drop_out": "0.3 /s",
        "availability": {"name": "renewal", "params": {"on": "10 s", "off": "2 s"}},
    }
    results = [learning(pacing, workers, **fleet) for workers in (1, 2, 4, 16)]
    assert {(r.trace_hash, r.model_hash) for r in results} == {(results[0].trace_hash, results[0].model_hash)}
    assert sum(results[0].drops.values()) > 0
    assert sum(row.merged for row in results[0].rounds) > 0
