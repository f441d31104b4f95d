"""Coroutine tests of this folder run on virtual time; the others ask for a loop."""

from collections.abc import Callable, Iterator

import pytest

from fedsim.clock import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], VirtualTimeLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()
