"""Clients that train the model that came and send it back, without a task for each.

That is the hook of many algorithms (:meth:`ModelTraining.train`), and most of what large cohorts do. What a
client does then is known without running the hook: one usual fit, and one reply. The hook stays the
definition: ``verify`` always runs it, every event is where it would be with it, and tests compare both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from fedsim.algorithms.base import Algorithm, Exchange
from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.bus import Delivery, Header
from fedsim.bus.memory import MemoryEndpoint
from fedsim.clock import running_loop
from fedsim.engine.cost import duration_s
from fedsim.engine.engine import Engine, RunningFit
from fedsim.engine.jobs import Fit, Fitted
from fedsim.engine.usual_fits import DEFAULT_STEP, UsualFit
from fedsim.params import Model
from fedsim.runtime.parts import Parts
from fedsim.runtime.tasks import Tasks
from fedsim.wire import Message, ModelBroadcast, ModelUpdate


def plain_training(
    parts: Parts,
    exchanges: Mapping[str, Exchange],
    engine: Engine,
    endpoint: MemoryEndpoint,
    tasks: Tasks,
) -> PlainTraining | None:
    """Return who serves the exchanges that are such training, if any are.

    Args:
        parts: What the run is made of.
        exchanges: As clients hold them.
        engine: Who does the work.
        endpoint: Where replies go.
        tasks: Where clients at work are ended with the run.
    """
    names = {
        name
        for name, exchange in exchanges.items()
        if getattr(exchange.local, "__func__", None) is ModelTraining.train
    }
    is_stateless = type(parts.algorithm).join is Algorithm.join and not parts.training.keep_optimiser
    if not names or not is_stateless or parts.workload.varies or parts.verify:
        return None
    return PlainTraining(parts, frozenset(names), engine, endpoint, tasks)


class PlainJob(NamedTuple):
    """What a client does for one dispatch.

    Attributes:
        fit: The fit.
        num_samples: How many samples it trains on.
        flops: What that costs.
        duration_s: How long its device takes, s.
    """

    fit: Fit
    num_samples: int
    flops: float
    duration_s: float


Over: TypeAlias = Callable[["PlainWork"], object]


class PlainTraining:
    """Serves such deliveries; made by :func:`plain_training`."""

    def __init__(
        self, parts: Parts, exchanges: frozenset[str], engine: Engine, endpoint: MemoryEndpoint, tasks: Tasks
    ) -> None:
        self.parts = parts
        self.engine = engine
        self.endpoint = endpoint
        self.tasks = tasks
        self._exchanges = exchanges
        self._algorithm = cast("ModelTraining[Any, Any]", parts.algorithm)
        self.key = parts.key.child("client")
        self._round = 0
        self._fits: dict[tuple[str, int], UsualFit] = {}  # of the round, by architecture and samples

    def serves(self, delivery: Delivery) -> bool:
        """Say whether a delivery asks for nothing but such training."""
        return self.trains(delivery.header.exchange, delivery.message)

    def trains(self, exchange: str, message: Message | None) -> bool:
        """Say whether a message of an exchange asks for nothing but such training."""
        return exchange in self._exchanges and type(message) is ModelBroadcast

    def start(self, client: int, waiting: list[Delivery], over: Over) -> PlainWork:
        """Let a client begin with what waits for it, where a task would begin.

        Args:
            client: The client.
            waiting: Its deliveries, of which the first is one that this serves. Each is taken out when its
                reply has left.
            over: Called when none is left, or one that this does not serve comes next.
        """
        return PlainWork(self, client, waiting, over)

    def job(self, header: Header, model: Model) -> PlainJob:
        """Return what a client does for a dispatch that brings it a model."""
        client, engine, parts = header.receiver, self.engine, self.parts
        num_samples = parts.data.num_samples(client, "train")
        key = self.key.child(client, header.turn)
        fits = self._fits_of(model, client, num_samples, header.round)
        fit = fits.of(model, client, key.child("train").seed, self._algorithm.training_extras(model))
        effort = fits.work.effort or engine.costs.work(fit, fits.work)
        device = parts.fleet.device(client)
        if device.variation or device.load is not None:
            key = key.child("load", header.dispatch, 1)
        return PlainJob(fit, num_samples, effort.total.flops, duration_s(device, effort, key))

    def _fits_of(self, model: Model, client: int, num_samples: int, round: int) -> UsualFit:  # noqa: A002
        """Return what the fits of a round have in common that start from models of one architecture.

        Args:
            model: Start values.
            client: Whose samples.
            num_samples: How many it has.
            round: The round.
        """
        if self._round != round:
            self._round = round
            self._fits.clear()
        kind = model.architecture, num_samples
        if (known := self._fits.get(kind)) is None:
            training = self.parts.training.in_round(round, self.parts.num_rounds)
            algorithm = self._algorithm
            known = self._fits[kind] = self.engine.usual_fits.like(
                *(model, client, num_samples, training),
                step=algorithm.training_step or DEFAULT_STEP,
                extras=algorithm.training_extras(model),
            )
        return known


class PlainWork(RunningFit):
    """What one client is at, as long as such deliveries wait for it.

    Attributes:
        client: The client.
    """

    __slots__ = ("_is_training", "_num_samples", "_of", "_over", "_waiting", "client")

    def __init__(self, of: PlainTraining, client: int, waiting: list[Delivery], over: Over) -> None:
        self._of = of
        self.client = client
        self._waiting = waiting
        self._over: Over | None = over  # None once it is over
        self._is_training = False
        of.tasks.add(self)
        running_loop().call_soon(self._begin)

    def cancel(self) -> None:
        """End it, where a cancelled task would end."""
        if self._over is not None:
            self._finish()
            if self._is_training:
                running_loop().call_soon(self.stop)

    def _finish(self) -> None:
        self._over = None
        self._of.tasks.remove(self)

    def _begin(self) -> None:
        if self._over is None:
            return
        try:
            self._train(self._waiting[0])
        except Exception as error:
            self._fail(error)

    def _train(self, delivery: Delivery) -> None:
        of, header = self._of, delivery.header
        job = of.job(header, cast(ModelBroadcast, delivery.message).model)
        self._num_samples = job.num_samples
        of.engine.begin(
            self,
            job.fit,
            client=self.client,
            dispatch=header.dispatch,
            flops=job.flops,
            duration_s=job.duration_s,
            place=partial(place_of, self.client, header.round),
        )
        self._is_training = True

    def ended(self, fitted: Fitted | None, error: Exception | None) -> None:
        """Send what the fit gives, or fail with it."""
        self._is_training = False
        if fitted is None:
            self._fail(cast(Exception, error))
            return
        reply = ModelUpdate.of(fitted.model, self._num_samples)
        self._of.endpoint.send(self._waiting[0].header.reply(), reply).then(self._replied)

    def _replied(self) -> None:
        over, waiting = self._over, self._waiting
        if over is None:
            return
        del waiting[0]
        if waiting and self._of.serves(waiting[0]):
            running_loop().call_soon(self._begin)
        else:
            self._over = None
            over(self)

    def _fail(self, error: Exception) -> None:
        self._finish()
        self._of.tasks.fail(error)


def place_of(client: int, round: int) -> str:  # noqa: A002
    """Return the words for whose job it is, for an error."""
    return f" at client {client} in round {round}"
