"""Where actors are: what the pool of actors needs of Ray, or of what stands in for it in tests."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from fedsim.engine.cluster.packing import PackedResult
from fedsim.params import Tree


class LostError(Exception):
    """An actor has died, or its result has gone with its machine."""


class Place(Protocol):
    """Where actors are. Answers come in any thread, as futures do.

    Attributes:
        store_bytes: Size of the object store of this machine.
    """

    store_bytes: float

    def start(self, number: int) -> Any:
        """Begin to start an actor; return what it is known by."""

    def greet(self, actor: Any) -> Future[Any]:
        """Ask an actor for its :class:`Greeting`; an actor that dies is a :class:`LostError`."""

    def do(self, actor: Any, octets: bytes, alike: bool, trees: Sequence[Any]) -> Future[PackedResult]:
        """Have an actor do packed jobs; an actor that dies is a :class:`LostError`."""

    def put(self, tree: Tree) -> Any:
        """Keep a tree for actors to read, as long as somebody holds what this returns."""

    def end(self, actor: Any) -> None:
        """End an actor."""

    def check(self) -> None:
        """Look whether the cluster is there; a :class:`RunError` says that it is gone."""
