"""Requests that are answered as no server of fedsim does, or with bytes that were harmed on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.requests import Requests
from fedsim.errors import DecodeError

FRAME = bytes(range(256)) * 10
WHOLE = FRAME + sha256(FRAME).digest()
SPOILT = b"x" + WHOLE[1:]


class Answering(Requests):
    """Requests that are answered in turn with these bytes."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        super().__init__("http://server", "", None, None, HttpLimits(), lambda: 0.5, lambda: None)
        self.joined.set()
        self.answers = list(answers)

    @asynccontextmanager
    async def send(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        async def pieces() -> AsyncIterator[bytes]:
            yield self.answers.pop(0)

        yield SimpleNamespace(status=200, content=SimpleNamespace(iter_any=pieces))


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([SPOILT, SPOILT, WHOLE], id="spoilt"),
        pytest.param([WHOLE[:100], WHOLE[:200], WHOLE], id="too short"),
    ],
)
async def test_a_frame_is_fetched_until_it_is_whole(answers: list[bytes]) -> None:
    requests = Answering(answers)
    found = await requests.download("/dispatch/0/0", len(FRAME))
    assert bytes(found or b"") == FRAME
    assert not requests.answers


async def test_a_frame_that_is_spoilt_each_time_is_given_up() -> None:
    requests = Answering([SPOILT] * 3)
    with pytest.raises(DecodeError, match="2592 bytes came 3 times with another SHA-256"):
        await requests.download("/dispatch/0/0", len(FRAME))
