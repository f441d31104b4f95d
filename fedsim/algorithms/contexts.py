"""What the hooks of an algorithm are given: who they are, what they may know, and their device."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, cast

import numpy as np

from fedsim.algorithms.aggregation.base import Aggregation
from fedsim.algorithms.hook_work import HookWork
from fedsim.data import Split
from fedsim.engine.compute_context import ComputeContext, party_words
from fedsim.engine.engine import Engine
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.requests import JobRequest
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import Device
from fedsim.params import Array, Model
from fedsim.rng import Key

Warn = Callable[..., object]
"""Takes note of an event, named by its first argument, with values by keyword."""


class Initial(Protocol):
    """Gives start values."""

    def __call__(self, label: str, variant: int = 0) -> Model:
        """Return a start model of an architecture, always with the same values; ``KeyError`` if unknown."""


def ignored(event: str, **values: Any) -> None:
    """Note nothing."""


class Background(dict[str, asyncio.Task[Any]]):
    """Work of the server that runs beside the clients', by name, until it is collected."""

    @property
    def num_unstarted(self) -> int:
        """How many of its tasks have not had their first turn."""
        states = [inspect.getcoroutinestate(cast(Any, task.get_coro())) for task in self.values()]
        return states.count(inspect.CORO_CREATED)

    def drop(self) -> None:
        """Cancel all work that was not collected."""
        for task in self.values():
            task.cancel()
        self.clear()


def place_of(client: int, round: int) -> str:  # noqa: A002
    """Return whose job it is and of which round, in words behind what is said of the job."""
    return f"{party_words(client)} in round {round}"


class Context(ComputeContext):
    """What hooks at either side may know and do.

    Attributes:
        architecture: Label of the party's own architecture.
        round: The round in which the server asked; at the server 0 before the first, one more than the last
            after it.
        warn: Notes in the run's log what a reader may have to know: an event and values by keyword.
        note: Notes something ordinary there.
    """

    def __init__(
        self,
        engine: Engine,
        device: Callable[[], Device],
        training: TrainingConfig,
        *,
        client: int,
        dispatch: int,
        key: Key,
        architecture: str,
        round: int,  # noqa: A002
        initial: Initial,
        warn: Warn = ignored,
        note: Warn = ignored,
        keeping: Keeping | None = None,
    ) -> None:
        super().__init__(engine, device, training, client=client, dispatch=dispatch, key=key, keeping=keeping)
        self.architecture = architecture
        self.round = round
        self.warn = warn
        self.note = note
        self._initial = initial

    def _place(self) -> str:
        return place_of(self._client, self.round)

    def initial_model(self, architecture: str | None = None, *, variant: int = 0) -> Model:
        """Return start values of an architecture, equal for all parties.

        Args:
            architecture: Its label; by default the party's own architecture.
            variant: Which of its start models: each number stands for values drawn independently.
        """
        return self._initial(architecture or self.architecture, variant)


class ClientContext(Context):
    """What a client's hook may know and do.

    A client hook awaits the context's calls and nothing else. The driver of the hook decides what becomes of
    the jobs: they take virtual time, real time, or, for a forecast or the observer, none.
    """

    def _perform(self, request: JobRequest) -> JobRequest:
        return request

    def num_samples(self, split: Split = "train") -> int:
        """Return how many samples of a split the client holds."""
        return self._engine.resources.data.num_samples(self._client, split)

    def own_values(self, split: Split = "train") -> tuple[Array, Array]:
        """Return the client's samples ``[n, ...]`` and labels ``[n]`` themselves; zeros for counts only.

        For ``centralized`` alone: in a federation they do not leave the client.
        """
        data = self._engine.resources.data
        if not data.has_samples:
            n = self.num_samples(split)
            return np.zeros((n, *self.task.input_shape), self.task.dtype), np.zeros(n, self.task.label_dtype)
        positions = data.indices(self._client, split)
        return data.x[positions], data.y[positions]


class ServerContext(Context):
    """What a hook at the server may know and do.

    Attributes:
        architecture_of: Gives the label of the architecture with which a client has signed up.
        version: How often the exchanges of rounds have been merged.
        num_clients: Clients in the population.
        num_eligible: Those of them that can take part: with training samples, and the memory for the job.
        aggregation: What combines the models that clients send.
        work: Notes what the hook does in virtual time; None if no checkpoints are kept.
    """

    def __init__(
        self,
        *args: Any,
        architecture_of: Callable[[int], str],
        version: int,
        length: Callable[[], int],
        num_eligible: int,
        background: Background,
        clients_key: Key,
        aggregation: Aggregation[Any],
        work: HookWork | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.work = work
        self.architecture_of = architecture_of
        self.version = version
        self.num_clients = self._engine.resources.data.num_clients
        self.num_eligible = num_eligible
        self._length = length
        self._background = background
        self._clients_key = clients_key
        self.aggregation = aggregation

    @property
    def num_rounds(self) -> int:
        """How many rounds the run has."""
        return self._length()

    def public_values(self, positions: Array) -> Array:
        """Return samples of the public set themselves, ``[p, ...]``; zeros where there are counts only."""
        data = self._engine.resources.data
        if not data.has_samples:
            return np.zeros((len(positions), *self.task.input_shape), self.task.dtype)
        return data.x[data.public[positions]]

    def key_of_client(self, client: int, turn: int) -> Key:
        """Return the key by which a client's generators are named when it is asked for the n-th time.

        For work at the server that is to meet its samples in the order in which a client would.
        """
        return self._clients_key.child(client, turn)

    def background(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start work that overlaps with the clients'; a later hook of the round collects it."""
        if name in self._background:
            work.close()
            raise ValueError(f"background work {name!r} has not been collected yet")
        task = asyncio.get_running_loop().create_task(work, name=f"server background {name}")
        self._background[name] = task
        if self.work is not None:
            self.work.begin(name, task)

    async def collect(self, name: str) -> Any:
        """Wait for background work and return its result."""
        if name not in self._background:
            there = ", ".join(self._background) or "none"
            raise ValueError(f"no background work is called {name!r}; there is: {there}")
        task = self._background.pop(name)
        return await (task if self.work is None else self.work.collect(name, task))

    def _perform(self, request: JobRequest) -> Awaitable[list[Any]]:
        return super()._perform(request) if self.work is None else self.work.run(self._engine, request)
