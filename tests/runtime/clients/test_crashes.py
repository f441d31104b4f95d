from typing import Any

import numpy as np

from fedsim.network.fault_settings import FaultConfig
from fedsim.network.faults import NEVER_NS, RunFault
from fedsim.rng import Key
from fedsim.runtime.clients.crashes import Crashes

S = 10**9


def crash(members: Any = None, **settings: Any) -> RunFault:
    return RunFault(FaultConfig.model_validate({"kind": "crash", **settings}), Key.root(2), members)


def test_a_client_crashes_at_instants() -> None:
    once, often = crash(at="5 s"), crash(at="2 s", every="3 s")
    assert [Crashes([once]).next_ns(0, at * S) for at in (0, 4, 5, 9)] == [5 * S, 5 * S, NEVER_NS, NEVER_NS]
    assert [Crashes([often]).next_ns(0, at * S) for at in (0, 2, 3, 5)] == [2 * S, 5 * S, 5 * S, 8 * S]
    assert Crashes([once, often]).next_ns(0, 4 * S) == 5 * S
    others = crash(np.array([False, True]), at="5 s")
    assert [Crashes([others]).next_ns(client, 0) for client in range(2)] == [NEVER_NS, 5 * S]
    assert Crashes([crash(at="5 s", every="1 s", probability=0.0)]).next_ns(0, 0) == NEVER_NS


def test_whether_it_crashes_is_drawn_for_each_client_and_instant() -> None:
    crashes, found = Crashes([crash(at="1 s", every="1 s", probability=0.25)]), dict[int, list[int]]()
    for client in range(20):
        at_ns, found[client] = 0, []
        while (at_ns := crashes.next_ns(client, at_ns)) <= 1000 * S:
            found[client].append(at_ns)
            assert at_ns % S == 0
    count = sum(map(len, found.values()))
    assert abs(count / 20_000 - 0.25) < 4 * (0.25 * 0.75 / 20_000) ** 0.5
    assert found[0] != found[1]
    # Where one begins to look makes no difference.
    assert crashes.next_ns(3, found[3][4] - 1) == found[3][4]


def test_states_are_lost_where_they_are_not_kept() -> None:
    forgetful, kept = crash(at="5 s", keeps_state=False), crash(at="3 s")
    crashes = Crashes([forgetful, kept])
    assert not crashes.forgets(0, 0, 5 * S - 1)
    assert crashes.forgets(0, 0, 5 * S)
    assert not crashes.forgets(0, 5 * S, 99 * S)
