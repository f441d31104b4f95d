from dataclasses import replace
from typing import Any

import pytest

from fedsim.data.fingerprints import fingerprint
from fedsim.errors import UserError
from fedsim.runtime.sockets.handshake import Greeting, check_data, read


@pytest.mark.parametrize("verify", [True, False])
def test_a_greeting_comes_as_it_was_sent(verify: bool, world: Any) -> None:
    said = Greeting("[run]", "fedavg", fingerprint(world.make_data([3, 4])), verify)
    assert read(said.encode()) == said


def test_the_same_data_are_fine(world: Any) -> None:
    check_data(Greeting("", "", fingerprint(world.make_data([3, 4]))), world.make_data([3, 4]))


def test_other_data_are_an_error_that_says_what_differs(world: Any) -> None:
    data = world.make_data([3, 4])
    said = Greeting("", "", fingerprint(data))
    with pytest.raises(
        UserError, match=r"server: labels \(13 of int64 both, with other values\)\. Both sides"
    ):
        check_data(said, replace(data, y=1 - data.y))
    with pytest.raises(
        UserError, match=r"samples \(14 of float32 here, 13 of float32 there\); .*; who holds"
    ):
        check_data(said, world.make_data([4, 4]))


def test_a_server_that_says_nothing_of_its_data_is_not_trusted(world: Any) -> None:
    with pytest.raises(UserError, match="unknown there"):
        check_data(Greeting("", ""), world.make_data([3, 4]))
