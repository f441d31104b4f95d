"""What a client can say of its work for a dispatch before it begins: a rehearsal of its hook.

The hook runs in a context in which jobs take no virtual time and nothing is learned, and which adds up how
long its jobs would take. The lengths of frames are known without their values, so the transfers follow.
Faults are surprises, and play no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fedsim.algorithms.contexts import ClientContext
from fedsim.bus import Header
from fedsim.engine.cost import duration_s
from fedsim.engine.executors.base import Executor
from fedsim.engine.requests import JobRequest
from fedsim.engine.training_config import TrainingConfig
from fedsim.network import Links
from fedsim.rng import Key
from fedsim.runtime.clients.hook_steps import HookSteps, drive
from fedsim.runtime.message_codecs import MessageCodecs
from fedsim.runtime.parts import Parts
from fedsim.wire import SERVER, Message, pack


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """A dispatch that has arrived at its client, as :class:`fedsim.runtime.policies.workloads.base.Work`.

    Attributes:
        parts: What the run is made of.
        links: The fleet's.
        header: What concerns the delivery.
        message: What came.
        turn: Gives the key that names the client's generators of this turn.
        context: Makes a context that trains in a given way.
        hook: Gives what the client does with a context.
        instead: Gives results without learning.
        codecs: The codecs of messages; None where nothing is coded.
    """

    parts: Parts
    links: Links
    header: Header
    message: Message | None
    turn: Callable[[], Key]
    context: Callable[[TrainingConfig], ClientContext]
    hook: Callable[[ClientContext], HookSteps]
    instead: Executor
    codecs: MessageCodecs | None = None

    @property
    def training(self) -> TrainingConfig:
        """How clients train, as the scenario says."""
        return self.parts.training

    @property
    def key(self) -> Key:
        """Names the generators of the client's decision."""
        return self.turn().child("workload")

    @property
    def usual_steps(self) -> int:
        """Mini-batches that this is for the client's own samples and architecture."""
        context = self.context(self.training)
        return context.usual_steps(context.architecture)

    async def reply_after_s(self, training: TrainingConfig) -> float:
        """Return the predicted time from the dispatch to the arrival of the reply, s."""
        device = self.parts.fleet.device(self.header.receiver)
        spent_s = 0.0

        async def perform(request: JobRequest) -> list[Any]:
            nonlocal spent_s
            spent_s += sum(duration_s(device, timed.effort, device.mean_load) for timed in request.jobs)
            return [self.instead.wait(self.instead.submit(timed.job, (0, 0))) for timed in request.jobs]

        _, reply = await drive(self.hook(self.context(training)), perform)
        return self._transfer_s(self.message, "down") + spent_s + self._transfer_s(reply, "up")

    def _transfer_s(self, message: Message | None, way: Literal["up", "down"]) -> float:
        if message is None:
            return 0.0
        client, header = self.header.receiver, self.header
        sender, receiver = (client, SERVER) if way == "up" else (SERVER, client)
        if self.codecs is not None:
            message = (self.codecs.up if way == "up" else self.codecs.down).like(message)
        frame = pack(message).frame(
            sender=sender, receiver=receiver, round=header.round, exchange=header.exchange
        )
        num_bytes = self.parts.overhead.wire_bytes(len(frame), way)
        return self.parts.network.alone_s(self.links, sender, receiver, num_bytes)
