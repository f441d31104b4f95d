"""Each absence is looked up once, and of a crowd only some are polled."""

import numpy as np

from fedsim.fleet import Availability
from fedsim.params import Array
from fedsim.runtime.server import absences
from fedsim.runtime.server.absences import Absences


class Returning(Availability):
    """Client k is away until k + 1 s; it counts how often it is asked."""

    def __init__(self, num: int) -> None:
        super().__init__(num)
        self.asked = 0

    def _states(self, clients: Array, tick: int) -> Array:
        states: Array = tick >= 1024 * (clients + 1)
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        self.asked += 1
        return False, 1024 * (client + 1)


def test_an_absence_is_looked_up_once() -> None:
    availability = Returning(10)
    known, clients = Absences(availability), np.array([3, 5, 9])
    assert known.unknown(clients, 0.0).tolist() == [3, 5, 9]
    assert (known.next_return_s(clients, 0.0), availability.asked) == (4.0, 3)
    assert known.unknown(np.array([2, 3, 5]), 3.0).tolist() == [2]
    assert (known.next_return_s(clients[1:], 3.5), availability.asked) == (6.0, 3)
    assert known.unknown(clients, 4.0).tolist() == [3]  # it may have come


def test_of_a_crowd_some_are_polled_and_as_many_others_are_known_afterwards() -> None:
    availability = Returning(10 * absences.MAX_POLLED)
    known, clients = Absences(availability), np.arange(5, availability.num)
    assert known.next_return_s(clients, 0.0) == 6.0
    assert availability.asked < 3 * absences.MAX_POLLED
    assert known.next_return_s(clients[1:], 0.0) >= 7.0
    for _ in range(20):
        known.next_return_s(clients, 0.0)
    assert (len(known.unknown(clients, 0.0)), availability.asked) == (0, len(clients))
