"""Faults of the network: drawn by client and dispatch, and shown at their instants."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import Trace, now_s, sleep_for
from fedsim.network.base import Departures, Links, LonePassage, Parcel
from fedsim.network.fault_settings import FaultConfig
from fedsim.network.faults import SPOILT, FaultyCarrier, RunFault
from fedsim.network.naive import NaiveCarrier
from fedsim.rng import Key

KEY = Key.root(1)
LINKS = Links(np.full(2, 1e6), np.full(2, 1e6), np.full(2, 0.01), 1e7, 1e7, 0.0)


def fault(members: Any = None, key: Key = KEY, **settings: Any) -> RunFault:
    return RunFault(FaultConfig.model_validate(settings), key, members)


class Lone:
    """Carries each parcel for a second."""

    def carry(self, parcel: Parcel, listener: Any) -> LonePassage:
        return LonePassage(parcel, listener, 1.0, float("inf"))


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[float, str, Any]] = []

    def left(self) -> None:
        self.heard.append((now_s(), "left", None))

    def arrived(self, parcel: Parcel) -> None:
        self.heard.append((now_s(), "arrived", parcel.payload))

    def lost(self, cause: str) -> None:
        self.heard.append((now_s(), "lost", cause))


def carried(*faults: RunFault, at_s: float = 0.0, **parcel: Any) -> tuple[list[Any], list[Any]]:
    """Carry a parcel from client 0 at an instant; return what is heard, and the records of faults."""
    ear, trace = Ear(), Trace(keep=True)

    async def main() -> None:
        carrier = FaultyCarrier(Lone(), faults, trace)
        await sleep_for(at_s)
        carrier.carry(Parcel(**{"sender": 0, "receiver": -1, "num_bytes": 8, "payload": "it", **parcel}), ear)
        await sleep_for(100.0)

    clock.run(main())
    return ear.heard, [(at_ns / 1e9, *values) for at_ns, _, *values in trace.kept]


def test_a_frame_is_lost_at_the_end_of_its_way() -> None:
    heard, records = carried(fault(kind="loss", probability=1.0), dispatch=3)
    assert heard == [(1.0, "left", None), (1.0, "lost", "loss")]
    assert records == [(1.0, 0, 3, True, "loss")]


def test_a_spoilt_frame_arrives_as_such() -> None:
    heard, records = carried(fault(kind="corrupt", probability=1.0))
    assert heard == [(1.0, "left", None), (1.0, "arrived", SPOILT)]
    assert records == [(1.0, 0, 0, True, "corrupt")]


def test_a_late_frame_has_left_in_time() -> None:
    late = fault(kind="delay", probability=1.0, delay="3 s")
    heard, records = carried(late, late)
    assert heard == [(1.0, "left", None), (7.0, "arrived", "it")]
    assert records == [(1.0, 0, 0, True, "delay")]


def test_a_duplicate_arrives_at_the_same_instant() -> None:
    heard, records = carried(fault(kind="duplicate", probability=1.0))
    assert heard == [(1.0, "left", None), (1.0, "arrived", "it"), (1.0, "arrived", "it")]
    assert records == [(1.0, 0, 0, True, "duplicate")]


def test_a_lost_frame_is_nothing_else() -> None:
    others = [fault(kind=kind, probability=1.0) for kind in ("duplicate", "corrupt", "loss")]
    heard, records = carried(*others)
    assert heard[1:] == [(1.0, "lost", "loss")]
    assert len(records) == 1


@pytest.mark.parametrize(
    ("at_s", "heard"),
    [
        (0.0, [(1.0, "left", None), (1.0, "arrived", "it")]),  # before
        (4.5, [(5.0, "lost", "partition")]),  # under way when it begins
        (4.0, [(5.0, "left", None), (5.0, "arrived", "it")]),  # it arrives at the very instant
        (5.0, [(6.0, "left", None), (6.0, "lost", "partition")]),
        (6.5, [(7.5, "left", None), (7.5, "lost", "partition")]),  # though it arrives after the end
        (7.0, [(8.0, "left", None), (8.0, "arrived", "it")]),
        (14.5, [(15.0, "lost", "partition")]),  # it begins again
        (97.0, [(98.0, "left", None), (98.0, "lost", "partition")]),
    ],
)
def test_nothing_passes_in_a_partition(at_s: float, heard: list[Any]) -> None:
    settings: dict[str, Any] = {"kind": "partition", "at": "5 s", "for": "2 s", "every": "10 s"}
    if at_s == 97.0:
        settings = {"kind": "partition", "at": "20 s"}  # without an end
    found, records = carried(fault(**settings), at_s=at_s)
    assert found == heard
    assert len(records) == (heard[-1][1] == "lost")


def test_what_is_late_is_cut_off_too() -> None:
    late, apart = fault(kind="delay", probability=1.0, delay="9 s"), fault(kind="partition", at="5 s")
    heard, records = carried(late, apart)
    assert heard == [(1.0, "left", None), (5.0, "lost", "partition")]
    assert [record[-1] for record in records] == ["delay", "partition"]


def test_what_arrives_as_a_partition_begins_has_arrived_also_after_a_pause() -> None:
    ear = Ear()

    async def main() -> None:
        await sleep_for(3.0)
        carrier = FaultyCarrier(Lone(), [fault(kind="partition", at="5 s")], Trace())
        passage = carrier.carry(Parcel(0, -1, 8, "it"), ear)
        await sleep_for(0.5)
        passage.pause()
        await sleep_for(0.5)
        passage.resume()
        await sleep_for(9.0)

    clock.run(main())
    assert ear.heard == [(5.0, "left", None), (5.0, "arrived", "it")]


def test_faults_are_for_a_direction_for_clients_and_for_a_time() -> None:
    others = np.array([False, True])
    for spared in (
        fault(kind="loss", probability=1.0, direction="down"),
        fault(others, kind="loss", probability=1.0),
        fault(kind="loss", probability=1.0, at="5 s"),
        fault(kind="loss", probability=0.0),
    ):
        assert carried(spared)[0][1][1] == "arrived"
    assert carried(fault(others, kind="loss", probability=1.0), sender=1)[0][1][1] == "lost"
    assert (
        carried(fault(kind="loss", probability=1.0, direction="down"), sender=-1, receiver=1)[0][1][1]
        == "lost"
    )


def test_a_paused_frame_is_late_by_as_much() -> None:
    ear, trace = Ear(), Trace()

    async def main() -> None:
        late = fault(kind="delay", probability=1.0, delay="3 s")
        passage = FaultyCarrier(Lone(), [late], trace).carry(Parcel(0, -1, 8, "it"), ear)
        await sleep_for(2.0)
        passage.pause()
        passage.pause()
        await sleep_for(10.0)
        passage.resume()
        passage.resume()
        await sleep_for(1.5)
        other = FaultyCarrier(Lone(), [late], trace).carry(Parcel(0, -1, 8, "other"), ear)
        await sleep_for(2.0)
        other.cancel()
        other.resume()
        await sleep_for(100.0)

    clock.run(main())
    assert [one for one in ear.heard if one[1] == "arrived"] == [(14.0, "arrived", "it")]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_a_cohort_draws_what_its_frames_draw(client: int, dispatch: int, up: bool) -> None:
    one = fault(kind="loss", probability=0.5)
    ends = (client, -1) if up else (-1, client)
    parcels = Departures(*(np.array([number]) for number in (0, client, 8, dispatch)))
    alone = one.strikes(Parcel(*ends, 8, None, dispatch), 0)
    assert one.strikes_any(parcels, np.array([1]), up) == alone


def test_a_cohort_that_is_struck_has_no_timetable() -> None:
    clients = np.arange(2)
    parcels = Departures(np.zeros(2, np.int64), clients, np.full(2, 8), np.zeros(2, np.int64))
    for faults, expected in (
        ([], 2),
        ([fault(kind="loss", probability=0.0)], 2),
        ([fault(kind="loss", probability=1.0, direction="up")], 2),
        ([fault(kind="loss", probability=1.0)], 0),
        ([fault(np.array([False, False]), kind="partition")], 2),
        ([fault(kind="partition", at="1 h")], 2),
        ([fault(kind="partition", at="1 ms")], 0),
    ):
        found = FaultyCarrier(NaiveCarrier(LINKS), faults, Trace()).arrivals(
            parcels, up=False, all_at_once=True, by_ns=10**18
        )
        assert len(found.place) == expected
    lone: Any = Lone()
    assert not len(
        FaultyCarrier(lone, [], Trace()).arrivals(parcels, up=True, all_at_once=True, by_ns=1).place
    )


def test_rates_are_their_probabilities() -> None:
    """Within four standard errors over 100,000 dispatches."""
    one, counts = fault(kind="loss", probability=0.03), Counter[bool]()
    for up in (False, True):
        for dispatch in range(50_000):
            ends = (dispatch % 100, -1) if up else (-1, dispatch % 100)
            counts[one.strikes(Parcel(*ends, 8, None, dispatch // 100), 0)] += 1
    assert abs(counts[True] / 1e5 - 0.03) < 4 * (0.03 * 0.97 / 1e5) ** 0.5
