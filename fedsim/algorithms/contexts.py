"""What the hooks of an algorithm are given: who they are, what they may know, and a workbench."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fedsim.data import Split
from fedsim.engine.workbench import Workbench
from fedsim.params import Model


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


class ClientContext(Workbench):
    """What a client's hook may know and do.

    Attributes:
        architecture: Label of the client's own architecture.
        round: The round in which the server asked.
    """

    def __init__(
        self,
        *args: Any,
        architecture: str,
        round: int,  # noqa: A002
        initial: Initial,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.architecture = architecture
        self.round = round
        self._initial = initial

    def initial_model(self) -> Model:
        """Return the start values of the client's architecture, equal for all who share it."""
        return self._initial(self.architecture)

    def num_samples(self, split: Split = "train") -> int:
        """Return how many samples of a split the client holds."""
        return self._engine.resources.data.num_samples(self.client, split)


class ServerContext(Workbench):
    """What a hook at the server may know and do.

    Attributes:
        architecture: Label of the server's own architecture.
        round: The round's number: 0 before the first, one more than the last after it.
        num_rounds: How many rounds the run has.
        num_clients: Clients in the population.
    """

    def __init__(
        self,
        *args: Any,
        architecture: str,
        round: int,  # noqa: A002
        num_rounds: int,
        initial: Initial,
        background: Background,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.architecture = architecture
        self.round = round
        self.num_rounds = num_rounds
        self._initial = initial
        self._background = background

    @property
    def num_clients(self) -> int:
        """Clients in the population."""
        return self._engine.resources.data.num_clients

    def initial_model(self, architecture: str | None = None) -> Model:
        """Return the start values of an architecture, by default the server's own."""
        return self._initial(architecture or self.architecture)

    def background(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start work that overlaps with the clients'; a later hook of the round collects it."""
        self._background.start(name, work)

    async def collect(self, name: str) -> Any:
        """Wait for background work and return its result."""
        return await self._background.collect(name)
