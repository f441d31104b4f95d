"""Budgets: what ends a run before its last round, once it is met.

A budget is of simulated time, of bytes, of energy, or an accuracy to reach. The first that is met ends the
rounds at that instant, in the middle of a round too, whose open dispatches then count as dropped. What the
algorithm does after its last round follows, as it does without a budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
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
    """Watches the budgets of a run.

    Args:
        until: The budgets.
        trace: Where frames are recorded, and the budget that was met.
        meter: What knows the energy of clients; None over sockets.
    """

    def __init__(self, until: UntilConfig, trace: Trace, meter: Meter | None = None) -> None:
        self._until = until
        self._trace = trace
        self._num_bytes = 0
        self._met: asyncio.Future[None] = running_loop().create_future()
        if until.bytes is not None:
            trace.listen({"transfer_start": self._sent})
        if until.joules is not None and meter is not None:
            meter.watch(until.joules, partial(self._meet, "joules"))

    async def hold(self, rounds: Coroutine[Any, Any, None], passed_s: float = 0.0) -> bool:
        """Hold rounds until a budget is met; return whether one was met before they ended by themselves.

        So much time has passed since they began.
        """
        if (time_s := self._until.simulated) is not None:
            call_after(max(0.0, time_s - passed_s), self._meet, "simulated", event_class=EventClass.DEADLINE)
        task = running_loop().create_task(rounds, name="rounds")
        either: list[asyncio.Future[None]] = [task, self._met]
        try:
            await wait(either, wanted=1)
        finally:
            if is_met := not task.done():
                task.cancel()
                await wait([task])
        if not (is_met and task.cancelled()):
            task.result()  # raises what they failed with, also while they were stopped
        return is_met

    async def measured(self, accuracy: Accuracy) -> None:
        """Hear of an evaluation; if it is good enough this does not return, and the rounds end here."""
        goal, reached = self._until.accuracy, getattr(accuracy, MEASURES[self._until.of].attribute)
        if goal is not None and reached is not None and reached >= goal:
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
        self._num_bytes += num_bytes
        if self._num_bytes >= (self._until.bytes or 0):
            self._meet("bytes")

    def _meet(self, budget: Budget) -> None:
        if not self._met.done():
            self._trace.record(STOP, budget)
            self._met.set_result(None)
