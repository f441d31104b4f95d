"""Stale replies: the pacing says how much one counts, and the algorithm what that acts on.

The pacing and the algorithms are made up for this: a buffer, as FedBuff has it (Nguyen et al., 2022), the
steps of FedBuff and of FedAsync (Xie et al., 2019), and a mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Replies, Reply, Setting
from fedsim.algorithms.common.model_rounds import shares
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg
from fedsim.clock import wait
from fedsim.config import Config
from fedsim.errors import Fault, UserError
from fedsim.params import Model, mean_model
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.base import Pacing, Rounds
from fedsim.runtime.server.open_dispatches import OpenDispatch
from fedsim.wire import ModelUpdate


class BufferConfig(Config):
    """How many replies a merge waits for, and whether old ones count less."""

    size: int = 2
    discounts: bool = True


class Buffer(Pacing[BufferConfig]):
    """Keeps a cohort's number of clients at work, and merges whenever so many have replied."""

    Config = BufferConfig

    @property
    def carries(self) -> bool:
        return True

    def merge_size(self, cohort_size: int) -> int:
        return self.config.size

    def discount(self, staleness: int) -> float:
        return 1 / sqrt(1 + staleness) if self.config.discounts else 1.0

    def awaited(self, going: Sequence[OpenDispatch]) -> Sequence[OpenDispatch]:
        return going

    async def run(self, rounds: Rounds) -> None:
        (exchange,) = rounds.exchanges
        going: list[OpenDispatch] = []
        for _ in range(rounds.num_rounds):
            rounds.begin_round()
            await rounds.wait_for_candidates([one.reply for one in going])
            cohort = await rounds.select(rounds.cohort_size - len(going))
            going += await rounds.dispatch(exchange, cohort, cohort)
            awaited = self.awaited(going)
            await wait([one.reply for one in awaited], wanted=self.config.size)
            ready = [one for one in awaited if one.reply.done()][: self.config.size]
            going = [one for one in going if one not in ready]
            await rounds.merge(exchange, ready)
            await rounds.end_round()
        await wait([one.reply for one in going])
        rounds.discard(going, "the run ended")


class Queue(Buffer):
    """Merges those first that were asked first, so that real time decides nothing."""

    def awaited(self, going: Sequence[OpenDispatch]) -> Sequence[OpenDispatch]:
        return going[: self.config.size]


class Noting(FedAvg):
    """Notes of each reply merged who sent it, how old it is, and how much it counts."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen: list[tuple[int, int, float]] = []

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        self.seen += [(reply.client, reply.staleness, reply.discount) for reply in replies]
        return await super().merge(server, state, replies)


class Averaging(Noting):
    """Takes the mean of the models that come."""

    discounted = "shares"


class Adding(Noting):
    """Adds the mean change of the models, each change discounted (FedBuff)."""

    discounted = "steps"

    async def train(self, client: ClientContext, state: Any, message: Any) -> tuple[Any, ModelUpdate]:
        _, update = await super().train(client, state, message)
        change = {name: array - message.params[name] for name, array in update.params.items()}
        return state, ModelUpdate(update.architecture, change, update.buffers, update.num_samples)

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        await super().merge(server, state, replies)
        params = dict(state.params)
        for reply in replies:
            for name, change in reply.message.params.items():
                params[name] = params[name] + np.float32(reply.discount / len(replies)) * change
        return Model(state.architecture, params)


class Mixing(Noting):
    """Moves onto each model that comes, less far if it is old (FedAsync)."""

    discounted = "steps"
    ALPHA = 0.6

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        await super().merge(server, state, replies)
        for reply in replies:
            far = self.ALPHA * reply.discount
            state = mean_model([state, reply.message.model], [1 - far, far])
        return state

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        yield from super().misfits(setting)
        if setting.merge_size != 1:
            yield Fault("participation.pacing", f"{setting.pacing!r} merges several replies", "size = 1")


def _made(kind: type[Noting]) -> Noting:
    return kind(kind.Config())


def _paced(kind: type[Buffer] = Buffer, **settings: Any) -> dict[str, Any]:
    pacing = kind(BufferConfig(**settings))
    return {"pacing": pacing, "num_clients": 6, "clients_per_round": 4, "rounds": 6}


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (Mixing, 1),
        pytest.param(Averaging, 2, marks=pytest.mark.slow),
        *(pytest.param(Adding, size, marks=pytest.mark.slow) for size in (1, 2)),
    ],
)
def test_models_are_the_same_every_way(kind: type[Noting], size: int, world: Any) -> None:
    made = list[Noting]()

    def make() -> Noting:
        made.append(_made(kind))
        return made[-1]

    world.run_every_way(make, **_paced(Queue, size=size))
    assert all(one.seen == made[0].seen for one in made)
    # Four at work: the first are merged at once, and in the end each after those that went before it.
    assert [staleness for _, staleness, _ in made[0].seen][-size:] == [4 // size - 1] * size
    assert made[0].seen[0][1:] == (0, 1.0)


def test_replies_come_as_they_are_done(world: Any) -> None:
    algorithm = _made(Adding)
    result = world.run(algorithm, **_paced())
    assert [row.merged for row in result.rounds[:6]] == [2] * 6
    assert len({staleness for _, staleness, _ in algorithm.seen}) > 2  # some clients are slower than others
    assert all(discount == 1 / sqrt(1 + staleness) for _, staleness, discount in algorithm.seen)
    again = world.run(_made(Adding), workers=3, **_paced())
    assert (again.trace_hash, again.model_hash) == (result.trace_hash, result.model_hash)


def test_one_client_at_work_gives_the_same_models_over_sockets(world: Any) -> None:
    pacing = Buffered(Buffered.Config(concurrency=1, buffer=1))
    result = world.run_every_way(lambda: _made(Averaging), pacing=pacing, rounds=3)
    assert [row.merged for row in result.rounds] == [1] * 3


def test_what_replies_while_the_last_round_is_measured_is_closed_over_sockets(world: Any) -> None:
    pacing = Buffered(Buffered.Config(concurrency=4, buffer=1))
    result = world.run_over_sockets(_made(Averaging), pacing=pacing, rounds=3)
    assert sum(row.merged for row in result.rounds) == 3


def _reply(value: float, discount: float, client: int = 0) -> Reply:
    message = ModelUpdate("mlp", {"w": np.array([value], np.float32)}, {}, 7)
    return Reply(client, 0, "train", 0, 3, discount, message)


def _merged(kind: type[Noting], *replies: Reply) -> float:
    """Return what one number of the server's model, 10 before, becomes."""
    start = Model("mlp", {"w": np.array([10.0], np.float32)})
    merging: Any = _made(kind).merge(None, start, replies)  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as ended:
        merging.send(None)
    return float(ended.value.value.params["w"][0])


def test_the_discount_of_a_single_reply_vanishes_in_a_mean_alone() -> None:
    assert shares([_reply(2.0, 0.25)], [7]) == [1.0]
    assert _merged(Averaging, _reply(2.0, 0.25)) == 2.0
    assert _merged(Adding, _reply(2.0, 0.25)) == 10.5
    assert _merged(Mixing, _reply(2.0, 0.25)) == pytest.approx(0.85 * 10 + 0.15 * 2)


def test_so_it_does_where_all_replies_are_equally_old() -> None:
    old, new = ([_reply(2.0, discount, 0), _reply(4.0, discount, 1)] for discount in (0.5, 1.0))
    assert _merged(Averaging, *old) == _merged(Averaging, *new) == 3.0
    assert _merged(Adding, *new) == 13.0
    assert _merged(Adding, *old) == 11.5
    assert _merged(Averaging, old[0], new[1]) == pytest.approx((0.5 * 2 + 4) / 1.5)


def test_a_discount_shows_where_it_acts_on_steps(world: Any) -> None:
    hashes = {world.run(_made(Mixing), **_paced(size=1, discounts=on)).model_hash for on in (True, False)}
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("algorithm", "settings", "fault"),
    [
        ("dsfl", {}, "merges replies of several versions, and 'dsfl' cannot: its round has 2 exchanges"),
        ("fedmd", {}, "'fedmd' cannot: its round has 2 exchanges — write 'synchronous', or choose another"),
        (Averaging, {"size": 1}, "its share is 1 however stale it is — merge several, discount nothing"),
        (Mixing, {"size": 2}, "merges several replies"),
    ],
)
def test_what_cannot_be_is_refused(
    algorithm: Any, settings: Mapping[str, Any], fault: str, world: Any
) -> None:
    made = world.algorithm(algorithm) if isinstance(algorithm, str) else _made(algorithm)
    with pytest.raises(UserError, match=r"participation\.pacing") as caught:
        world.run(made, **_paced(**settings))
    assert fault in str(caught.value)


def test_what_is_not_discounted_may_be_merged_one_by_one(world: Any) -> None:
    algorithm = _made(Averaging)
    world.run(algorithm, **_paced(size=1, discounts=False))
    assert max(staleness for _, staleness, _ in algorithm.seen) > 0


def test_several_exchanges_cannot_overlap(world: Any) -> None:
    class Twice(Averaging):
        @property
        def exchanges(self) -> Any:
            (train,) = super().exchanges
            return (train, train)

    paths = [fault.path for fault in world.parts(_made(Twice), **_paced()).misfits()]
    assert paths == ["participation.pacing", "algorithm"]
