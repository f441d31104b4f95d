"""Stale replies under a pacing that lets dispatches overlap in an order that real time does not decide."""

from math import sqrt
from typing import Any

import pytest

from fedsim.clock import wait
from fedsim.config import Config
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.base import Pacing, Rounds
from fedsim.runtime.server.open_dispatches import OpenDispatch


class QueueConfig(Config):
    """How many replies a merge waits for."""

    size: int = 2


class Queue(Pacing[QueueConfig]):
    """Keeps a cohort's number of clients at work, and merges those first that were asked first."""

    Config = QueueConfig

    @property
    def carries(self) -> bool:
        return True

    def merge_size(self, cohort_size: int) -> int:
        return self.config.size

    def discount(self, staleness: int) -> float:
        return 1 / sqrt(1 + staleness)

    async def run(self, rounds: Rounds) -> None:
        (exchange,) = rounds.exchanges
        going: list[OpenDispatch] = []
        for _ in range(rounds.num_rounds):
            rounds.begin_round()
            await rounds.wait_for_candidates([one.reply for one in going])
            cohort = await rounds.select(rounds.cohort_size - len(going))
            going += await rounds.dispatch(exchange, cohort, cohort)
            awaited = going[: self.config.size]
            await wait([one.reply for one in awaited], wanted=self.config.size)
            ready = [one for one in awaited if one.reply.done()]
            going = [one for one in going if one not in ready]
            await rounds.merge(exchange, ready)
            await rounds.end_round()
        await wait([one.reply for one in going])
        rounds.discard(going, "the run ended")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("fedasync", 1),
        pytest.param("fedavg", 2, marks=pytest.mark.slow),
        *(pytest.param("fedbuff", size, marks=pytest.mark.slow) for size in (1, 2)),
    ],
)
def test_models_are_the_same_every_way(name: str, size: int, world: Any) -> None:
    seen = list[list[tuple[int, int, float]]]()

    def make() -> Any:
        algorithm, merged = world.algorithm(name), list[tuple[int, int, float]]()
        merge = algorithm.merge

        async def noting(server: Any, state: Any, replies: Any) -> Any:
            merged.extend((reply.client, reply.staleness, reply.discount) for reply in replies)
            return await merge(server, state, replies)

        algorithm.merge = noting
        seen.append(merged)
        return algorithm

    pacing = Queue(QueueConfig(size=size))
    world.check_every_way(make, pacing=pacing, num_clients=6, clients_per_round=4, rounds=6)
    assert all(merged == seen[0] for merged in seen)
    # Four at work: the first are merged at once, and in the end each after those that went before it.
    assert [staleness for _, staleness, _ in seen[0]][-size:] == [4 // size - 1] * size
    assert all(discount == 1 / sqrt(1 + staleness) for _, staleness, discount in seen[0])


def test_one_client_at_work_gives_the_same_models_over_sockets(world: Any) -> None:
    pacing = Buffered(Buffered.Config(concurrency=1, buffer=1))
    result = world.check_every_way(lambda: world.algorithm("fedavg"), pacing=pacing, rounds=3)
    assert [row.merged for row in result.rounds] == [1] * 3


def test_what_replies_while_the_last_round_is_measured_is_closed_over_sockets(world: Any) -> None:
    pacing = Buffered(Buffered.Config(concurrency=4, buffer=1))
    result = world.run_over_sockets(world.algorithm("fedavg"), pacing=pacing, rounds=3)
    assert sum(row.merged for row in result.rounds) == 3
