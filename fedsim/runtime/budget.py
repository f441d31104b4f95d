"""Budgets: what ends a run before its last round, once it is met.

A budget is of simulated time, of bytes, of energy, or an accuracy to reach. The first that is met ends the
rounds at that instant, in the middle of a round too, whose open dispatches then count as dropped. What the
algorithm does after its last round follows, as it does without a budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedsim.clock import EventClass, RecordKind, Trace, call_after, running_loop, wait
from fedsim.config import Config
from fedsim.units import PositiveBytes, PositiveSeconds, Unit, spell

if TYPE_CHECKING:
    from fedsim.runtime.clients.batteries import Meter
    from fedsim.runtime.evaluation import Accuracy

STOP = RecordKind("stop", ("budget",))

Budget = Literal["accuracy", "simulated", "bytes", "joules"]
Measure = Literal["personal_mean", "personal_worst_decile", "global"]


class MeasureNames(NamedTuple):
    """What a measure is called.

    Attributes:
        attribute: Of an evaluation.
        column: Of the tables of a study.
        words: In tables for people.
    """

    attribute: str
    column: str
    words: str


MEASURES: dict[Measure, MeasureNames] = {
    "personal_mean": MeasureNames("mean", "accuracy_personal_mean", "mean over clients"),
    "personal_worst_decile": MeasureNames(
        "worst_decile", "accuracy_worst_decile", "mean over the 10 % least accurate clients"
    ),
    "global": MeasureNames("global_", "accuracy_global", "on the global test set"),
}


class UntilConfig(Config):
    """What ends the rounds; the first that is met does."""

    accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """The evaluation of a round shows at least this accuracy."""
    of: Measure = "personal_mean"
    """Which accuracy: the mean over clients, the mean over the least accurate tenth of them, or the one on
    the global test set."""
    simulated: PositiveSeconds | None = None
    """So much simulated time has passed; over sockets, real time."""
    bytes: PositiveBytes | None = None
    """Frames of so many bytes were sent, up and down together, raw samples included."""
    joules: Annotated[float, Unit("energy", positive=True)] | None = None
    """All clients together have spent so much energy."""

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the keys without ``of`` where it says nothing, so that they can be read again."""
        keys: dict[str, Any] = write(self)
        if self.accuracy is None:
            keys.pop("of", None)
        return keys

    @property
    def text(self) -> str:
        """The budgets in words."""
        words = [f"accuracy {self.accuracy} ({self.of})"] if self.accuracy is not None else []
        words += [spell(self.simulated, "time")] if self.simulated is not None else []
        words += [spell(self.bytes, "data size")] if self.bytes is not None else []
        words += [spell(self.joules, "energy")] if self.joules is not None else []
        return " or ".join(words)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(budget is None for budget in (self.accuracy, self.simulated, self.bytes, self.joules)):
            raise ValueError("it holds no budget: give accuracy, simulated, bytes or joules")
        if self.accuracy is None and "of" in self.model_fields_set:
            raise ValueError("of says which accuracy is to be reached: give accuracy too, or leave it out")
        return self


class Budgets:
    """Watches the budgets of a run, and holds its rounds.

    Args:
        trace: Where frames are recorded, and the budget that was met.
        meter: What knows the energy of clients; None over sockets.
    """

    def __init__(self, trace: Trace, meter: Meter | None = None) -> None:
        self._meter = meter
        self._trace = trace
        self._until: UntilConfig | None = None
        self._num_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stop_listening: Callable[[], None] | None = None
        self._met: asyncio.Future[None] = running_loop().create_future()
        self._left = self._met  # by which rounds end that go on under another pacing

    def watch(self, until: UntilConfig | None, num_bytes: int = 0) -> None:
        """Watch these budgets in place of those before.

        Args:
            until: The budgets; None for no end.
            num_bytes: Bytes that were sent by now.
        """
        if self._stop_listening is not None:
            self._stop_listening()
        if self._timer is not None:
            self._timer.cancel()
        self._stop_listening = self._timer = None
        self._until, self._num_bytes = until, num_bytes
        if self._meter is not None:
            joules = None if until is None else until.joules
            self._meter.watch(inf if joules is None else joules, partial(self._meet, "joules"))
        if until is not None and until.bytes is not None:
            self._stop_listening = self._trace.listen({"transfer_start": self._sent})
            self._count(0, until.bytes)

    def start(self, passed_s: float) -> None:
        """Let the time of a budget begin, of which so much has passed, s."""
        if self._until is not None and (time_s := self._until.simulated) is not None:
            if (left_s := time_s - passed_s) <= 0:
                self._meet("simulated")
                return
            self._timer = call_after(left_s, self._meet, "simulated", event_class=EventClass.DEADLINE)

    async def hold(self, rounds: Coroutine[Any, Any, None]) -> bool:
        """Hold rounds until they end by themselves, a budget is met or they are left.

        Returns:
            Whether they have ended by themselves.
        """
        self._left = running_loop().create_future()
        task = running_loop().create_task(rounds, name="rounds")
        either: list[asyncio.Future[None]] = [task, self._met, self._left]
        try:
            await wait(either, wanted=1)
        finally:
            if is_stopped := not task.done():
                task.cancel()
                await wait([task])
        if not (is_stopped and task.cancelled()):
            task.result()  # raises what they failed with, also while they were stopped
        return not is_stopped

    @property
    def are_met(self) -> bool:
        """Whether one was met."""
        return self._met.done()

    async def leave(self) -> None:
        """Leave the rounds, which end here: this does not return."""
        self._left.set_result(None)
        await running_loop().create_future()

    async def measured(self, accuracy: Accuracy) -> None:
        """Hear of an evaluation; if it is good enough this does not return, and the rounds end here."""
        if self._until is None or (goal := self._until.accuracy) is None:
            return
        reached = getattr(accuracy, MEASURES[self._until.of].attribute)
        if reached is not None and reached >= goal:
            self._meet("accuracy")
            await running_loop().create_future()

    def _sent(
        self,
        at_ns: int,
        client: int,
        dispatch: int,
        up: bool,
        message: str,
        num_bytes: int,
        *_: object,
    ) -> None:
        if self._until is not None:
            self._count(num_bytes, self._until.bytes or 0)

    def _count(self, num_bytes: int, budget: float) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes >= budget:
            self._meet("bytes")

    def _meet(self, budget: Budget) -> None:
        if not self._met.done():
            self._trace.record(STOP, budget)
            self._met.set_result(None)
