import numpy as np

from fedsim.report.shown_clients import shown_clients


def test_a_small_fleet_is_shown_whole() -> None:
    shown = shown_clients(np.array([4, 2, 4]), np.array([1, 1, 1]), most=3)
    assert {name: clients.tolist() for name, clients in shown.items()} == {"": [2, 4]}


def test_of_a_large_one_the_slowest_the_median_and_the_fastest() -> None:
    client = np.array([*range(11), 0, 10])
    # Client c takes c s, but for client 0, whose mean is 20 s, and client 10, whose mean is 1.5 s.
    seconds = np.array([39.0, *range(1, 10), 1.0, 1.0, 2.0])
    shown = shown_clients(client, seconds * 1e9, most=7)
    assert {name: clients.tolist() for name, clients in shown.items()} == {
        "slowest": [0, 8, 9],
        "median": [5, 6],
        "fastest": [1, 10],
    }


def test_nobody_was_asked() -> None:
    shown = shown_clients(np.empty(0, int), np.empty(0, int))
    assert {name: clients.tolist() for name, clients in shown.items()} == {"": []}
