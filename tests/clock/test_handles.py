"""Handles as their holder sees them."""

import asyncio

from fedsim.clock import VirtualTimeLoop


def nothing() -> None:
    """Stand for any callback."""


def test_handles_say_what_they_are(loop: VirtualTimeLoop) -> None:
    handle, timer = loop.call_soon(nothing), loop.call_later(1.5, nothing)
    assert repr(handle) == f"<Handle {__name__}.nothing>"
    assert repr(timer) == f"<Timer {__name__}.nothing>"
    assert isinstance(handle, asyncio.Handle)
    assert isinstance(timer, asyncio.TimerHandle)
    handle.cancel()
    timer.cancel()
    assert repr(handle) == "<Handle cancelled>"
    assert repr(timer) == "<Timer cancelled>"
