from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from fedsim.errors import RunError, ScenarioError, UserError
from fedsim.runtime.policies.pacing.asynchronous import Buffered, Immediate
from fedsim.runtime.run import run
from fedsim.scenario.build import build
from fedsim.scenario.load import load_scenario


def buffered(**config: Any) -> Any:
    return Buffered(Buffered.Config(**config))


def durations(*by_client: float | None) -> Callable[[int, int], float | None]:
    """Return the durations of clients whose dispatches all take equally long."""
    return lambda client, number: by_client[client]


def test_clients_are_kept_at_work_and_asked_again_with_the_newest_version(rounds: Any) -> None:
    done = rounds(durations(2.0, 3.0), num_clients=2, num_rounds=3).play(buffered(concurrency=2, buffer=1))
    assert done.of("ask", "merge", "discard") == [
        ("ask", 0, 0, 0.0),
        ("ask", 1, 0, 0.0),
        ("merge", [0], 2.0),
        ("ask", 0, 1, 2.0),
        ("merge", [1], 3.0),
        ("ask", 1, 2, 3.0),
        ("merge", [0], 4.0),
        ("discard", [1], "the run ended", 4.0),
    ]
    assert done.staleness == [0, 1, 1]


def test_replies_of_one_instant_are_all_in_before_any_is_merged_or_anybody_asked(rounds: Any) -> None:
    done = rounds(durations(2.0, 2.0, 2.0, 5.0), num_clients=4, num_rounds=3)
    done.play(buffered(concurrency=4, buffer=1))
    assert [call[:2] for call in done.calls[4:] if call[0] in ("ask", "merge")] == [
        ("ask", 3),
        ("merge", [0]),
        ("merge", [1]),
        ("merge", [2]),  # and nobody is asked in between: the next would have been sent with version 3
    ]
    assert done.staleness == [0, 1, 2]
    longer = rounds(durations(2.0, 2.0, 2.0, 5.0), num_clients=4, num_rounds=4)
    longer.play(buffered(concurrency=4, buffer=1))
    assert longer.of("ask")[4:7] == [("ask", client, 3, 2.0) for client in (0, 1, 2)]


def test_who_replies_when_a_client_comes_is_heard_before_that_client_is_asked(rounds: Any) -> None:
    # Client 2 comes at 4 s, at which client 1 replies too: it gets the version after that reply.
    done = rounds(durations(9.0, 4.0, 1.0), num_clients=3, num_rounds=1, there_from_s={2: 4.0})
    done.play(buffered(concurrency=3, buffer=1))
    assert done.of("ask", "merge") == [("ask", 0, 0, 0.0), ("ask", 1, 0, 0.0), ("merge", [1], 4.0)]
    done = rounds(durations(9.0, 4.0, 1.0), num_clients=3, num_rounds=2, there_from_s={2: 4.0})
    done.play(buffered(concurrency=3, buffer=1))
    assert done.of("ask")[2:] == [("ask", 1, 1, 4.0), ("ask", 2, 1, 4.0)]


def test_a_client_may_be_in_a_merge_twice(rounds: Any) -> None:
    done = rounds(durations(1.0, 9.0), num_clients=2, num_rounds=1).play(buffered(concurrency=2, buffer=3))
    assert done.of("merge") == [("merge", [0, 0, 0], 3.0)]
    assert done.staleness == [0, 0, 0]


def test_a_lease_that_runs_out_frees_its_place(rounds: Any) -> None:
    done = rounds(lambda client, number: 1.0 if number else None, num_clients=2, num_rounds=2)
    done.play(buffered(concurrency=2, buffer=2))
    assert done.of("ask", "merge", "discard") == [
        ("ask", 0, 0, 0.0),
        ("ask", 1, 0, 0.0),
        ("discard", [0], "timeout", 20.0),
        ("discard", [1], "timeout", 20.0),
        ("ask", 0, 0, 20.0),
        ("ask", 1, 0, 20.0),
        ("merge", [0, 1], 21.0),
        ("ask", 0, 1, 21.0),
        ("ask", 1, 1, 21.0),
        ("merge", [0, 1], 22.0),
    ]


def test_a_run_of_which_nobody_is_chosen_ends(rounds: Any) -> None:
    class Unchosen(rounds):  # type: ignore[misc]
        async def select(self, count: int, among: Sequence[int] | None = None) -> Sequence[int]:
            self.calls.append(("select", count))
            return []

    done = Unchosen(durations(1.0), num_clients=1)
    with pytest.raises(
        RunError, match="101 selections in a row led to no dispatch, though clients were there"
    ):
        done.play(buffered(concurrency=1, buffer=1))
    assert len(done.of("select")) == 101


def test_a_refused_merge_leaves_the_version_and_its_round_counts(rounds: Any) -> None:
    done = rounds(durations(1.0), num_clients=1, num_rounds=3, refused=[1])
    done.play(buffered(concurrency=1, buffer=1))
    assert done.of("ask") == [("ask", 0, 0, 0.0), ("ask", 0, 1, 1.0), ("ask", 0, 1, 2.0)]
    assert len(done.of("end")) == 3


def test_too_stale_replies_are_dropped_when_they_come_and_when_merges_age_them(rounds: Any) -> None:
    # Client 1 replies at 3.5 s, three merges after it was asked.
    done = rounds(durations(1.0, 3.5), num_clients=2, num_rounds=5)
    done.play(buffered(concurrency=2, buffer=1, max_staleness=2))
    assert done.of("discard") == [("discard", [1], "too stale", 3.5), ("discard", [1], "the run ended", 5.0)]
    assert done.staleness == [0] * 5
    # Three at one instant: after two merges the third is two merges old.
    tied = rounds(durations(1.0, 1.0, 1.0), num_clients=3, num_rounds=3)
    tied.play(buffered(concurrency=3, buffer=1, max_staleness=1))
    assert tied.of("discard")[0] == ("discard", [2], "too stale", 1.0)


def test_replies_that_come_during_the_last_merge_are_closed_too(rounds: Any) -> None:
    done = rounds(durations(1.0, 1.5), num_clients=2, merge_s=2.0).play(buffered(concurrency=2, buffer=1))
    assert done.of("merge", "discard") == [("merge", [0], 1.0), ("discard", [1], "the run ended", 3.0)]


def test_the_places_of_who_replies_during_a_merge_are_filled_after_it(rounds: Any) -> None:
    done = rounds(durations(1.0, 1.5), num_clients=2, num_rounds=2, merge_s=2.0)
    done.play(buffered(concurrency=2, buffer=1))
    assert done.of("ask", "merge") == [
        ("ask", 0, 0, 0.0),
        ("ask", 1, 0, 0.0),
        ("merge", [0], 1.0),
        ("merge", [1], 3.0),
    ]


def test_a_place_is_filled_as_soon_as_somebody_comes(rounds: Any) -> None:
    done = rounds(durations(5.0, 5.0), num_clients=2, num_rounds=1, there_from_s={0: 1.0, 1: 2.0})
    done.play(buffered(concurrency=2, buffer=2))
    assert done.of("ask", "merge") == [
        ("ask", 0, 0, 1.0),
        ("ask", 1, 0, 2.0),
        ("ask", 0, 0, 6.0),
        ("merge", [0, 1], 7.0),
    ]


@pytest.mark.parametrize("plugin", [Buffered, Immediate])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "concurrency\n  it is missing"),
        ({"concurrency": 0}, "greater than or equal to 1"),
        ({"concurrency": 2, "max_staleness": -1}, "greater than or equal to 0"),
        ({"concurrency": 2, "full_at": -0.5}, "greater than or equal to 0"),
        ({"concurrency": 2, "staleness": "polynomal"}, "no staleness is called"),
    ],
)
def test_settings_that_make_no_sense_are_refused(plugin: Any, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plugin.Config(**config)


def test_what_counts_in_full_may_be_a_mean_staleness() -> None:
    pacing = buffered(concurrency=2, staleness="polynomial", full_at=3.0)
    assert [pacing.discount(staleness) for staleness in (0, 3, 8)] == pytest.approx([2.0, 1.0, 2 / 3])


SMALL: dict[str, Any] = {
    "run": {"name": "small", "rounds": 6},
    "data": {"name": "digits", "limit": 200, "partition": "iid"},
    "models": {"mlp": {"params": {"hidden": [6]}}},
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.1, "batch_size": 8},
    "fleet": [{"count": 8, "device": "low"}, {"count": 4, "device": "high"}],
    "participation": {
        "clients_per_round": 3,
        "client_timeout": "5 s",
        "pacing": {"name": "buffered", "params": {"concurrency": 6, "staleness": "polynomial"}},
    },
    "evaluation": {"every": 3},
}
TIED = [{"count": 12, "speed": "1 GFLOP/s", "variation": 0.0, "up": "1 Mbit/s", "down": "1 Mbit/s"}]
CHURN = [
    {
        "count": 12,
        "overhead": {"distribution": "lognormal", "median": "500 ms", "sigma": 0.5},
        "drop_out": "0.1 /s",
        "availability": {"name": "renewal", "params": {"on": "4 s", "off": "2 s"}},
    }
]


def small(**changes: Any) -> Any:
    """Return the parts of a small run; ``changes`` by path, with ``__`` for a dot."""
    overrides = {path.replace("__", "."): value for path, value in changes.items()}
    return replace(build(load_scenario(SMALL, overrides)), verify=True)


def test_a_round_ends_with_every_k_replies(rounds: Any) -> None:
    pacing = Buffered(Buffered.Config(concurrency=3))
    done = rounds(lambda client, number: client + 1.0, num_clients=3, num_rounds=2, cohort_size=2)
    done.play(pacing)
    assert (pacing.merge_size(2), pacing.carries) == (2, True)
    assert done.of("begin", "merge", "end") == [
        ("begin", 0.0),
        ("merge", [0, 0], 2.0),  # which client 1 shares: it is the first of the next
        ("end", 2.0),
        ("begin", 2.0),
        ("merge", [1, 0], 3.0),
        ("end", 3.0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fleet", [SMALL["fleet"], TIED, CHURN], ids=["as it is", "ties", "drop-outs and absences"]
)
def test_a_run_is_the_same_with_any_workers_and_batching(fleet: Any) -> None:
    results = [
        run(small(fleet=fleet, run__seed=5, engine__workers=workers, engine__batching=batching))
        for workers, batching in product((1, 2, 4), ("auto", "off"))
    ]
    assert len({(one.trace_hash, one.model_hash) for one in results}) == 1
    first = results[0]
    assert sum(row.merged for row in first.rounds) == 18
    assert max(first.dispatches.staleness()) > 0
    if fleet is CHURN:
        assert first.drops["dropped out"]


def test_one_client_at_work_is_a_synchronous_round_of_one() -> None:
    alone = {"participation.clients_per_round": 1, "run.rounds": 4}
    params = {"participation.pacing": {"name": "buffered", "params": {"concurrency": 1}}}
    buffered = run(build(load_scenario(SMALL, {**alone, **params})))
    synchronous = run(build(load_scenario(SMALL, {**alone, "participation.pacing": "synchronous"})))
    assert (buffered.trace_hash, buffered.model_hash) == (synchronous.trace_hash, synchronous.model_hash)


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        ({"concurrency": 13}, ".params.concurrency", "13 clients at work at once, and 12 can take part"),
        ({"concurrency": 4, "buffer": 5}, ".params.concurrency", "and a merge waits for 5 replies — write 5"),
        ({"concurrency": 2}, ".params.concurrency", "2 clients at work at once, and a merge waits for 3"),
        ({"concurrency": 6, "full_at": 2.0, "staleness": "polynomial"}, ".params", "leave full_at out"),
        ({"concurrency": 6, "full_at": 2.0}, ".params.full_at", "a reply of staleness 2 counts in full any"),
        (
            {"concurrency": 6, "full_at": 4.0, "staleness": "hinge"},
            ".params.full_at",
            "a reply of staleness 4 counts in full anyway — leave it out, or",
        ),
        (
            {"concurrency": 6, "buffer": 1, "staleness": "polynomial"},
            ".params",
            "its share is 1 however stale it is",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_path(changes: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(SMALL, {"participation.pacing.params": changes}))
    (fault,) = caught.value.faults
    assert fault.path == f"participation.pacing{path}"
    assert says in str(fault)


def test_an_algorithm_of_two_exchanges_is_refused() -> None:
    overrides = {"algorithm": {"name": "fedmd"}, "data.public": {"size": 20}}
    with pytest.raises(UserError, match=r"'buffered' merges replies of several versions, and 'fedmd' cannot"):
        build(load_scenario(SMALL, overrides))


def test_each_reply_is_merged_alone_and_a_round_has_as_many_as_are_wanted(rounds: Any) -> None:
    pacing = Immediate(Immediate.Config(concurrency=2))
    done = rounds(lambda client, number: client + 1.0, num_clients=2, num_rounds=2, cohort_size=2)
    done.play(pacing)
    assert pacing.merge_size(2) == 1
    assert done.of("begin", "merge", "end") == [
        ("begin", 0.0),
        ("merge", [0], 1.0),
        ("merge", [0], 2.0),  # of one instant, by client
        ("end", 2.0),
        ("begin", 2.0),
        ("merge", [1], 2.0),
        ("merge", [0], 3.0),
        ("end", 3.0),
    ]
    assert done.staleness == [0, 0, 2, 0]
