"""Lagged rounds: the first replies close them, the others may come some versions later."""

from typing import Any

import pytest

from fedsim.errors import ScenarioError
from fedsim.runtime.policies.pacing.lagged import PLUGIN
from fedsim.runtime.run import run
from fedsim.scenario.build import build
from fedsim.scenario.load import load_scenario

SMALL: dict[str, Any] = {
    "run": {"name": "small", "rounds": 8},
    "data": {"name": "sizes", "params": {"samples": 20, "input_shape": [4]}},
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.1, "batch_size": 8},
    "fleet": [
        {"count": 9, "overhead": {"distribution": "lognormal", "median": "10 s", "sigma": 1.0}},
        {"count": 3, "overhead": "1 min", "drop_out": "0.01 /s"},
    ],
    "participation": {
        "clients_per_round": 4,
        "client_timeout": "3 min",
        "pacing": {"name": "lagged", "params": {"concurrency": 10, "max_lag": 2}},
    },
    "engine": {"executor": "null"},
}


def lagged(**config: Any) -> Any:
    return PLUGIN(PLUGIN.Config(**config))


def test_a_round_closes_with_the_first_and_later_replies_are_merged_when_they_come(rounds: Any) -> None:
    done = rounds(lambda client, number: client + 1.0, num_clients=3, num_rounds=3)
    pacing = lagged(concurrency=3)
    done.play(pacing)
    assert (pacing.merge_size(1), pacing.carries) == (1, True)
    assert done.of("ask", "merge", "discard") == [
        ("ask", 0, 0, 0.0),
        ("ask", 1, 0, 0.0),
        ("ask", 2, 0, 0.0),
        ("merge", [0], 1.0),
        ("ask", 0, 1, 1.0),
        ("merge", [1, 0], 2.0),  # both at this instant
        ("ask", 0, 2, 2.0),
        ("ask", 1, 2, 2.0),
        ("merge", [2, 0], 3.0),
        ("discard", [1], "the run ended", 3.0),
    ]
    assert done.staleness == [0, 1, 0, 2, 0]


def test_who_falls_too_far_behind_is_given_up_and_asked_anew(rounds: Any) -> None:
    done = rounds(lambda client, number: 1.0 if client == 0 else 3.5, num_clients=2, num_rounds=4)
    done.play(lagged(concurrency=2, max_lag=1))
    assert done.of("discard") == [("discard", [1], "too stale", 2.0), ("discard", [1], "the run ended", 4.0)]
    assert done.of("ask")[3:5] == [("ask", 1, 2, 2.0), ("ask", 0, 2, 2.0)]
    patient = rounds(lambda client, number: 1.0 if client == 0 else 3.5, num_clients=2, num_rounds=4)
    patient.play(lagged(concurrency=2, max_lag=3))
    assert patient.of("merge")[3] == ("merge", [1], 3.5)
    assert patient.staleness == [0, 0, 0, 3]


def test_a_reply_that_comes_too_late_during_a_merge_is_dropped_too(rounds: Any) -> None:
    # Client 1 replies at 1.5 s, while the merge that leaves it behind goes on.
    done = rounds(lambda client, number: client * 0.5 + 1.0, num_clients=2, num_rounds=2, merge_s=2.0)
    done.play(lagged(concurrency=2, max_lag=0))
    assert done.of("discard") == [("discard", [1], "too stale", 3.0), ("discard", [1], "the run ended", 6.0)]
    assert done.staleness == [0, 0]


def test_or_rounds_wait_for_it(rounds: Any) -> None:
    done = rounds(lambda client, number: 1.0 if client == 0 else 3.5, num_clients=2, num_rounds=4)
    done.play(lagged(concurrency=2, max_lag=1, behind="wait", deadline="1.5 s"))
    assert done.of("merge") == [
        ("merge", [0], 1.0),
        ("merge", [1, 0], 3.5),
        ("merge", [0], 4.5),
        ("merge", [1, 0], 7.0),
    ]
    assert max(done.staleness) == 1


def test_a_deadline_closes_a_round_with_fewer_and_what_comes_at_it_counts(rounds: Any) -> None:
    done = rounds(lambda client, number: client + 1.0, num_clients=3, num_rounds=2, cohort_size=3)
    done.play(lagged(concurrency=3, deadline="2 s"))
    assert done.of("merge") == [("merge", [0, 1], 2.0), ("merge", [2, 0, 1], 4.0)]


def test_leases_that_run_out_count_for_no_reply(rounds: Any) -> None:
    done = rounds(lambda client, number: None, num_clients=2, num_rounds=2)
    done.play(lagged(concurrency=2))
    assert done.of("merge", "end") == [("merge", [], 20.0), ("end", 20.0), ("merge", [], 40.0), ("end", 40.0)]


def test_a_refused_merge_leaves_the_version(rounds: Any) -> None:
    done = rounds(lambda client, number: 1.0, num_clients=1, num_rounds=2, refused=[0]).play(
        lagged(concurrency=1)
    )
    assert done.of("ask") == [("ask", 0, 0, 0.0), ("ask", 0, 0, 1.0)]


@pytest.mark.parametrize("behind", ["give_up", "wait"])
def test_a_run_holds_to_the_largest_lag(behind: str) -> None:
    params = {"concurrency": 10, "max_lag": 2, "behind": behind}
    changes = {"participation.pacing.params": params, "run.seed": 2}
    result = run(build(load_scenario(SMALL, changes)))
    assert result.dispatches.staleness().max() == 2
    assert ("too stale" in result.drops) == (behind == "give_up")
    assert result.trace_hash == run(build(load_scenario(SMALL, changes))).trace_hash


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"concurrency": 13}, "13 clients at work at once, and 12 can take part"),
        ({"concurrency": 3}, "3 clients at work at once, and a merge waits for 4 replies — write 4 or more"),
    ],
)
def test_what_cannot_be_is_refused_by_path(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(SMALL, {"participation.pacing.params": params}))
    (fault,) = caught.value.faults
    assert fault.path == "participation.pacing.params.concurrency"
    assert says in str(fault)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"concurrency": 2, "max_lag": -1}, "greater than or equal to 0"),
        ({"concurrency": 2, "behind": "hope"}, "give_up"),
        ({"concurrency": 2, "deadline": 3}, "unit"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PLUGIN.Config(**config)
