"""Policies that change when things happen, and not what is learned."""

from typing import Any

import pytest

from fedsim.runtime.run import RunResult, run
from fedsim.scenario import Scenario, build

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
    return learning({})


def timed(pacing: dict[str, Any], result: RunResult) -> dict[str, Any]:
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
        result = learning(pacing, workers=workers, rounds=12, client_timeout="3 s", **unequal)
        assert result.drops["dropped out"] > 0
        assert sum(row.merged for row in result.rounds) > 12
        return result.trace_hash, result.model_hash

    found = [hashes(1.5, workers) for workers in (1, 2, 4, 16)]
    assert found == found[:1] * 4
    trace_hash, model_hash = hashes(1.0, 1)
    assert trace_hash != found[0][0]
    assert model_hash != found[0][1]
