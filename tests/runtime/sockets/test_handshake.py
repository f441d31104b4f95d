from dataclasses import replace
from typing import Any

import pytest

from fedsim import __version__
from fedsim.data.fingerprints import fingerprint
from fedsim.errors import UserError
from fedsim.runtime.sockets.handshake import FORMAT, Greeting, check_data, read


@pytest.mark.parametrize("verify", [True, False])
def test_a_greeting_comes_as_it_was_sent(verify: bool, world: Any) -> None:
    said = Greeting("[run]", "fedavg", fingerprint(world.make_data([3, 4])), verify)
    assert read(said.encode()) == said


def greeting(**changes: Any) -> bytes:
    return Greeting("[run]", "fedavg", **changes).encode()


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (greeting(fedsim="99.1"), rf"runs fedsim 99.1 .* this is fedsim {__version__} .* the same version"),
        (greeting(format=FORMAT + 1), rf"\(format {FORMAT + 1}\).* the same version on both sides"),
        (b"hello", "no fedsim server: check the address and the port"),
        (b'{"fedsim": 1}', "no fedsim server"),
        *(
            (greeting(data=bad), "greeting is damaged")
            for bad in (["task"], {"task": 3}, {"task": "x" * 301})
        ),
        (greeting(verify=1), "greeting is damaged"),
    ],
)
def test_a_greeting_that_is_none_for_this_version(said: bytes, match: str) -> None:
    with pytest.raises(UserError, match=match):
        read(said)


def test_data_are_compared(world: Any) -> None:
    data = world.make_data([3, 4])
    said = Greeting("", "", fingerprint(data))
    check_data(said, world.make_data([3, 4]))
    with pytest.raises(UserError, match=r"server: labels \(13 of int64 both, with other values\)\. Both"):
        check_data(said, replace(data, y=1 - data.y))
    other = r"samples \(14 of float32 here, 13 of float32 there\); .*; who holds.* or FEDSIM_DATA"
    with pytest.raises(UserError, match=other):
        check_data(said, world.make_data([4, 4]))
    with pytest.raises(UserError, match="unknown there"):
        check_data(Greeting("", ""), data)
