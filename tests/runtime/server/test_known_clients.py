"""What the server knows of its clients: hand-computed from what they do."""

from typing import Any, get_args

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.fleet import Availability
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.selectors.base import Candidates, Fact, Selector
from fedsim.runtime.server.known_clients import KnownClients

FACTS: tuple[Fact, ...] = get_args(Fact)


class Curious(Selector[Config]):
    """Takes the first candidates, and notes what is known of all in each round."""

    def __init__(self) -> None:
        super().__init__(Config())
        self.seen: list[dict[str, list[float]]] = []

    @property
    def wants(self) -> tuple[Fact, ...]:
        return FACTS

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        noted = {fact: candidates.known(fact).tolist() for fact in FACTS}
        self.seen.append(noted | {"clients": candidates.clients.tolist(), "round": [candidates.round]})
        candidates.memory["times"] = candidates.memory.get("times", 0) + 1
        assert candidates.memory == {"times": len(self.seen)}
        return candidates.clients[:count]


class Odd(Availability):
    """Client 0 is there until 2 s, client 1 from 2 s on, client 2 always."""

    def _states(self, clients: Array, tick: int) -> Array:
        is_late = tick >= 2 * 1024
        flags: Array = np.where(clients == 0, not is_late, (clients == 2) | is_late)
        return flags

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        raise NotImplementedError


def test_times_rounds_and_turnaround_of_those_who_were_asked(world: Any) -> None:
    curious = Curious()
    greet = Exchange("greet", when="opening", who="all", reply=world.Word)
    algorithm = world.Scripted(
        [greet, Exchange("talk", reply=world.Word), Exchange("echo", who="answered")],
        work_s=lambda client, exchange: 40.0 if client.client == 1 and exchange == "talk" else 3.0,
    )
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "8 s"}))
    world.play(algorithm, selector=curious, clients_per_round=2, rounds=2, pacing=pacing)
    first, second = curious.seen
    assert first["times_asked"] == first["times_merged"] == first["last_asked"] == [0, 0, 0]
    assert np.isnan(first["turnaround_s"]).all()
    # Client 0 replies 1 s down, 3 s at work, 1 s up later; client 1 is too late after 8 s.
    assert second["times_asked"] == second["last_asked"] == [1, 1, 0]
    assert second["times_merged"] == second["last_merged"] == [1, 0, 0]
    assert second["turnaround_s"][:2] == [5.0, 8.0]
    assert np.isnan(second["turnaround_s"][2])
    assert np.isnan(second["losses"]).all()
    assert [seen["round"] for seen in curious.seen] == [[1], [2]]


def test_who_was_there_at_selections_that_looked() -> None:
    known = KnownClients(FACTS, 3, "talk", Trace(), lambda exchange: np.full(3, -1.0))

    def look(at_s: float, *busy: int) -> None:
        everybody = np.arange(3)
        known.look(Candidates(everybody, np.array(busy, np.int64), Odd(3), at_s, lambda clients: clients))

    look(0.0)
    look(1.0, 2)  # which cannot be looked at
    look(3.0)
    assert known("present_since_s").tolist() == pytest.approx([np.nan, 3.0, 0.0], nan_ok=True)
    assert known("present_share").tolist() == [3 / 5, 2 / 5, 3 / 4]


def test_a_fact_that_nobody_wants_is_not_kept() -> None:
    known = KnownClients(("times_asked",), 3, "talk", Trace(), lambda exchange: np.full(3, -1.0))
    known.look(Candidates(np.arange(3), np.arange(0), Odd(3), 0.0, lambda clients: clients))
    assert known("times_asked").tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="'losses' of clients: name it in the selector's wants"):
        known("losses")
    with pytest.raises(ValueError, match="nobody keeps 'losses'"):
        Candidates(np.arange(3), np.arange(0), None, 0.0, lambda clients: clients).known("losses")
