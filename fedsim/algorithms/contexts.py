"""What the hooks of an algorithm are given: who they are, what they may know, and their device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np

from fedsim.data import Split
from fedsim.engine.device_context import DeviceContext
from fedsim.engine.engine import Engine
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import Device
from fedsim.params import Array, Model
from fedsim.rng import Key

Warn = Callable[..., object]
"""Takes note of an event, named by its first argument, with values by keyword."""


def ignored(event: str, **values: Any) -> None:
    """Note nothing."""


class Initial:
    """Start values by architecture, made once each."""

    def __init__(self, make: Mapping[str, Callable[[], Model]]) -> None:
        self._make = make
        self._made: dict[str, Model] = {}

    def __call__(self, architecture: str) -> Model:
        """Return the one start model of an architecture."""
        if architecture not in self._made:
            self._made[architecture] = self._make[architecture]()
        return self._made[architecture]


class Background:
    """Work of the server that is under way beside the clients'."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start work under a name that is not in use."""
        if name in self._tasks:
            work.close()
            raise ValueError(f"background work {name!r} has not been collected yet")
        self._tasks[name] = asyncio.get_running_loop().create_task(work, name=f"server background {name}")

    async def collect(self, name: str) -> Any:
        """Wait for work and return its result."""
        if name not in self._tasks:
            raise ValueError(
                f"no background work is called {name!r}; there is: {', '.join(self._tasks) or 'none'}"
            )
        return await self._tasks.pop(name)

    def drop(self) -> None:
        """Give up all work that nobody has asked for."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    @property
    def uncollected(self) -> tuple[str, ...]:
        """Names of work whose result nobody has asked for."""
        return tuple(self._tasks)


class ClientContext(DeviceContext):
    """What a client's hook may know and do.

    Attributes:
        architecture: Label of the client's own architecture.
        round: The round in which the server asked.
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
        self._initial = initial
        self._warn = warn
        self._note = note

    def initial_model(self, architecture: str | None = None) -> Model:
        """Return the start values of an architecture, by default the client's own; equal for all clients."""
        return self._initial(architecture or self.architecture)

    def warn(self, event: str, **values: Any) -> None:
        """Note in the run's log what a reader may have to know about this client."""
        self._warn(event, client=self.client, **values)

    def note(self, event: str, **values: Any) -> None:
        """Note something ordinary about this client in the run's log."""
        self._note(event, client=self.client, **values)

    def num_samples(self, split: Split = "train") -> int:
        """Return how many samples of a split the client holds."""
        return self._engine.resources.data.num_samples(self.client, split)

    def own_values(self, split: Split = "train") -> tuple[Array, Array]:
        """Return the client's samples ``[n, ...]`` and labels ``[n]`` themselves; zeros for counts only.

        For ``centralized`` alone: in a federation they do not leave the client.
        """
        data = self._engine.resources.data
        if not data.has_samples:
            n = self.num_samples(split)
            return np.zeros((n, *self.task.input_shape), self.task.dtype), np.zeros(n, self.task.label_dtype)
        positions = data.indices(self.client, split)
        return data.x[positions], data.y[positions]


class ServerContext(DeviceContext):
    """What a hook at the server may know and do.

    Attributes:
        architecture: Label of the server's own architecture.
        architecture_of: Gives the label of the architecture with which a client has signed up.
        round: The round's number: 0 before the first, one more than the last after it.
        num_rounds: How many rounds the run has.
        num_clients: Clients in the population.
    """

    def __init__(
        self,
        *args: Any,
        architecture: str,
        architecture_of: Callable[[int], str],
        round: int,  # noqa: A002
        num_rounds: int,
        initial: Initial,
        background: Background,
        clients_key: Key,
        warn: Warn = ignored,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.architecture = architecture
        self.architecture_of = architecture_of
        self.round = round
        self.num_rounds = num_rounds
        self._initial = initial
        self._background = background
        self._clients_key = clients_key
        self._warn = warn

    @property
    def num_clients(self) -> int:
        """Clients in the population."""
        return self._engine.resources.data.num_clients

    def initial_model(self, architecture: str | None = None) -> Model:
        """Return the start values of an architecture, by default the server's own."""
        return self._initial(architecture or self.architecture)

    def warn(self, event: str, **values: Any) -> None:
        """Note in the run's log what a reader may have to know."""
        self._warn(event, **values)

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
        self._background.start(name, work)

    async def collect(self, name: str) -> Any:
        """Wait for background work and return its result."""
        return await self._background.collect(name)
