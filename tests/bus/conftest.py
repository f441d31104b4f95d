"""Coroutine tests of this folder run on virtual time."""

from collections.abc import Callable

from fedsim.clock import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], VirtualTimeLoop]]:
    return {"virtual": VirtualTimeLoop}
