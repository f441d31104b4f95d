"""The contract, proven on an algorithm that needs all of it.

*Pairs*, made up for this test: in every round the server sends its model (*teach*); a client trains it
together with its own model by mutual learning, in one job, and returns it with a counter that the server
mirrors. The server trains its model further, overlapping with the second exchange (*settle*), in which those
who answered confirm; then the result is taken up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedsim.algorithms.base import (
    Algorithm,
    Exchange,
    Exchanges,
    Predictor,
    Reply,
    broadcast,
    mirrored,
    unmirrored,
)
from fedsim.algorithms.common.model_rounds import shares
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.engine.jobs import InlineSamples, Stream
from fedsim.engine.losses import Batches, Extras, Models
from fedsim.engine.steps import Descent
from fedsim.params import Array, Model, mean_model
from fedsim.runtime.run import run
from fedsim.wire import Message, ModelBroadcast, counted, message

COUNTED: dict[int, list[int]] = {}


@message("pair")
class PairUpdate(Message):
    """What a client returns: the taught model and how often the server has merged it, as the client knows."""

    architecture: str
    params: Mapping[str, Array] = counted()
    times_merged: int


@message("confirm")
class Confirm(Message):
    """A word."""

    word: str


@dataclass(frozen=True)
class PairServer:
    model: Model


@dataclass(frozen=True)
class PairClient:
    model: Model
    asked: int
    times_merged: int = mirrored()


def mutual(models: Models, batches: Batches, extras: Extras) -> Mapping[str, Tensor]:
    """Cross-entropy and KL towards the other's detached softmax, for both models."""
    batch = batches["train"]
    own, taught = models["own"](batch.x), models["taught"](batch.x)

    def loss(mine: Tensor, other: Tensor) -> Tensor:
        divergence = F.kl_div(
            F.log_softmax(mine, 1), F.log_softmax(other.detach(), 1), reduction="batchmean", log_target=True
        )
        return F.cross_entropy(mine, batch.labels) + divergence

    return {"own": loss(own, taught), "taught": loss(taught, own)}


class Pairs(Algorithm[Config, PairServer, PairClient]):
    """See the module."""

    messages = (PairUpdate, Confirm)

    @property
    def exchanges(self) -> Exchanges:
        return (
            Exchange(
                "teach",
                instruct=self.instruct_teach,
                local=self.local_teach,
                merge=self.merge_teach,
                reply=PairUpdate,
            ),
            Exchange(
                "settle",
                instruct=self.instruct_settle,
                local=self.local_settle,
                merge=self.merge_settle,
                who="answered",
                reply=Confirm,
            ),
        )

    def start(self, server: ServerContext) -> PairServer:
        return PairServer(server.initial_model())

    def join(self, client: ClientContext) -> PairClient:
        return PairClient(client.initial_model(), 0, 0)

    async def instruct_teach(
        self, server: ServerContext, state: PairServer, cohort: Sequence[int]
    ) -> tuple[PairServer, Mapping[int, Message | None]]:
        return state, broadcast(cohort, ModelBroadcast.of(state.model))

    async def local_teach(
        self, client: ClientContext, state: PairClient, message: ModelBroadcast
    ) -> tuple[PairClient, Message | None]:
        COUNTED.setdefault(client.client, []).append(state.times_merged)
        fitted = await client.fit({"own": state.model, "taught": message.model}, step=Descent(loss=mutual))
        taught = fitted.models["taught"]
        after = PairClient(fitted.models["own"], state.asked + 1, state.times_merged + 1)
        return after, PairUpdate(taught.architecture, taught.params, state.times_merged)

    async def merge_teach(
        self, server: ServerContext, state: PairServer, replies: Sequence[Reply]
    ) -> PairServer:
        models = [Model(reply.message.architecture, reply.message.params) for reply in replies]
        return PairServer(mean_model(models, shares(replies, [1.0] * len(replies))))

    async def instruct_settle(
        self, server: ServerContext, state: PairServer, cohort: Sequence[int]
    ) -> tuple[PairServer, Mapping[int, Message | None]]:
        server.background("polish", self._polish(server, state.model))
        return state, {client: Confirm(f"round {server.round}") for client in cohort}

    async def local_settle(
        self, client: ClientContext, state: PairClient, message: Confirm
    ) -> tuple[PairClient, Message | None]:
        return state, Confirm(message.word.upper())

    async def merge_settle(
        self, server: ServerContext, state: PairServer, replies: Sequence[Reply]
    ) -> PairServer:
        assert {reply.message.word for reply in replies} == {f"ROUND {server.round}"}
        return PairServer(await server.collect("polish"))

    async def models_of(
        self, observer: ClientContext, server_state: PairServer, client_state: PairClient
    ) -> Mapping[str, Predictor]:
        return {"personal": Predictor(client_state.model), "global": Predictor(server_state.model)}

    async def _polish(self, server: ServerContext, model: Model) -> Model:
        x = np.zeros((8, 64), np.float32)
        pseudo = InlineSamples(x, np.zeros(8, np.int64))
        fitted = await server.fit(model, streams={"train": Stream(pseudo, 4)}, epochs=1)
        return fitted.model


@pytest.fixture(autouse=True)
def _fresh() -> None:
    COUNTED.clear()


def _server_uploads_of(client: int, occurrence: int) -> Any:
    seen: list[int] = []

    def doomed(parcel: Any, ordinal: int) -> bool:
        if parcel.sender == client:
            seen.append(ordinal)
            return len(seen) - 1 == occurrence
        return False

    return doomed


def test_two_exchanges_and_two_models_in_one_job(world: Any) -> None:
    trace = Trace(keep=True)
    result = run(world.parts(Pairs(Config())), trace=trace)
    assert [row.asked for row in result.rounds] == [8, 8, 8]  # four clients, twice a round
    jobs = [record for record in trace.kept if record[1] == "job_start"]
    clients = [record for record in jobs if record[2] >= 0]
    assert len(clients) == 4 * 3  # one job trains both models
    assert result.final is not None
    assert result.final.mean != result.final.global_


def test_server_work_takes_the_servers_time(world: Any) -> None:
    trace = Trace(keep=True)
    run(world.parts(Pairs(Config())), trace=trace)
    jobs = [record for record in trace.kept if record[1] == "job_start" and record[2] == -1]
    assert len(jobs) == 3
    server = world.parts(Pairs(Config())).fleet.server
    for _, _, _, dispatch, name, flops, duration_s in jobs:
        assert (dispatch, name) == (-1, "fit")
        speed_flops = server.efficiency * server.speed_flops
        assert duration_s == pytest.approx(server.overhead_s + flops / speed_flops)


def test_server_work_overlaps_with_the_clients(world: Any) -> None:
    # A server slower than the exchange decides when the round ends; a faster one does not appear.
    parts = world.parts(Pairs(Config()))
    slow = parts.fleet.server._replace(speed_flops=1000.0, variation=0.0)
    parts.fleet.server = slow
    trace = Trace(keep=True)
    result = run(parts, trace=trace)
    starts = [r[0] for r in trace.kept if r[1] == "job_start" and r[2] == -1]
    ends = [r[0] for r in trace.kept if r[1] == "job_end" and r[2] == -1]
    for start, end, row in zip(starts, ends, result.rounds, strict=True):
        settled = [r[0] for r in trace.kept if r[1] == "transfer_end" and start < r[0] < end]
        assert settled  # the clients' frames arrived while the server was at work
        assert row.ended_at_s == pytest.approx(end / 1e9)


def test_both_sides_may_say_something_in_the_log(world: Any) -> None:
    class Talking(Pairs):
        """Says something ordinary and something to know in each round."""

        async def instruct_teach(self, server: ServerContext, state: Any, cohort: Sequence[int]) -> Any:
            server.note("asked", num_clients=len(cohort))
            server.warn("careful", round=server.round)
            return await super().instruct_teach(server, state, cohort)

    notes = world.notes()
    run(world.parts(Talking(Config()), rounds=2), log=notes)
    assert notes.of("asked") == [{"num_clients": 4}] * 2
    assert [values["round"] for values in notes.of("careful")] == [1, 2]


def test_a_mirrored_field_counts_merges_alone(world: Any) -> None:
    # Client 2's first upload is lost: what it mirrors goes back, what is its own stays.
    result = world.run(Pairs(Config()), lost=_server_uploads_of(2, 0), client_timeout_s=30.0)
    assert COUNTED[1] == [0, 1, 2]
    assert COUNTED[2] == [0, 0, 1]
    assert result.by_client["dropped"].tolist() == [0, 0, 1, 0]


def test_a_second_frame_lost_keeps_the_first_exchange(world: Any) -> None:
    # The confirmation is lost: teach was merged before, so its mirrored field stands.
    world.run(Pairs(Config()), lost=_server_uploads_of(2, 1), client_timeout_s=30.0)
    assert COUNTED[2] == [0, 1, 2]


def test_silence_in_the_second_exchange_does_not_stop_a_run(world: Any) -> None:
    # Nobody confirms, so the hook that would collect the server's work never runs (specification 3.5, E2).
    def confirmations(parcel: Any, ordinal: int) -> bool:
        return bool(parcel.receiver < 0 and parcel.num_bytes < 500)

    result = world.run(Pairs(Config()), lost=confirmations, client_timeout_s=30.0)
    assert [row.merged for row in result.rounds] == [4, 4, 4]
    assert result.drops["timeout"] == 12


def test_repeats_itself_with_more_workers(world: Any) -> None:
    first, second = (world.run(Pairs(Config()), workers=workers) for workers in (1, 3))
    assert (first.trace_hash, first.model_hash) == (second.trace_hash, second.model_hash)


def test_unmirrored_returns_what_stands_without_a_merge() -> None:
    model = Model("mlp", {})
    before, after = PairClient(model, 1, 5), PairClient(model, 2, 6)
    assert unmirrored(before, after) == PairClient(model, 2, 5)
    assert unmirrored(None, None) is None


class Silent(Pairs):
    """Holds one exchange more, of which it says nothing but its name."""

    @property
    def exchanges(self) -> Exchanges:
        return (*super().exchanges, Exchange("silent"))


def test_an_exchange_of_a_name_alone_asks_everyone_and_changes_nothing(world: Any) -> None:
    plain, silent = world.run(Pairs(Config())), world.run(Silent(Config()))
    assert [row.asked for row in silent.rounds] == [12, 12, 12]
    assert [row.merged for row in silent.rounds] == [12, 12, 12]
    assert (silent.totals, silent.model_hash) == (plain.totals, plain.model_hash)


class Twice(Pairs):
    """Has two exchanges of one name."""

    @property
    def exchanges(self) -> Exchanges:
        return (*super().exchanges, Exchange("teach"))


class Mute(Pairs):
    """Wants replies that no client makes."""

    @property
    def exchanges(self) -> Exchanges:
        return (*super().exchanges, Exchange("silent", reply=Confirm))


@pytest.mark.parametrize(
    ("algorithm", "fault"),
    [(Twice, "two of its exchanges are called 'teach'"), (Mute, "that no client makes")],
)
def test_exchanges_that_cannot_be_are_told(algorithm: type[Pairs], fault: str, world: Any) -> None:
    assert [fault in str(one) for one in world.parts(algorithm(Config())).misfits()] == [True]
    assert not list(world.parts(Pairs(Config())).misfits())
