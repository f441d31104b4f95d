"""What every availability model promises; a new file of the folder has to be added here."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.fleet.availability.base import Availability, AvailabilityPlugin, Grouped
from fedsim.plugins import available, load
from fedsim.rng import Key

FOLDER = "fedsim.fleet.availability"
NUM = 40
TRACE = """client,on_at_s,off_at_s
early,0,3600
early,7200.5,9000
late,600,4000
late,4000,9000
never seen again,8999.25,8999.5
always,0,9000
"""
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "always": [{}],
    "diurnal": [
        {},
        {"share": 0.5, "swing": 3, "keeps": "1 s", "sigma": 0, "zones": {"+05:45": 1, "-14:45": 2}},
    ],
    "duty_cycle": [{}, {"period": "1 s", "on_share": 0.1}, {"period": "7.3 s", "on_share": 1}],
    "renewal": [{}, {"on": "1 s", "off": "90 s", "sigma": 2}, {"on": "5 s", "off": "3 s", "sigma": 0}],
    "trace": [{}, {"repeat": "3 h"}],
}
CASES = [(name, index) for name, cases in SETTINGS.items() for index in range(len(cases))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("traces")
    (path / "phones.csv").write_text(TRACE)
    return path


def plugin_of(case: tuple[str, int], folder: Path) -> AvailabilityPlugin[Any]:
    name, index = case
    settings = SETTINGS[name][index] | ({"file": str(folder / "phones.csv")} if name == "trace" else {})
    plugin = load(FOLDER, name)
    return plugin(plugin.Config.model_validate(settings))  # type: ignore[return-value]


@cache
def bound(case: tuple[str, int], folder: Path, seed: int = 0) -> Availability:
    return plugin_of(case, folder).bind(NUM, Key.root(seed))


every_case = pytest.mark.parametrize("case", CASES, ids=str)
clients = st.integers(0, NUM - 1)
few = settings(max_examples=settings().max_examples // 3)
"""A third of the usual examples, for each of so many models."""
instants = st.floats(0, 1e5) | st.floats(0, 1e11) | st.integers(0, 10**8).map(float)


def test_every_model_is_tested_here() -> None:
    assert [found.name for found in available(FOLDER)] == list(SETTINGS)


@every_case
@few
@given(client=clients, at_s=instants)
def test_nothing_changes_until_the_next_change(
    case: tuple[str, int], folder: Path, client: int, at_s: float
) -> None:
    presence = bound(case, folder)
    state, change_at = presence.look(client, at_s)
    assert change_at > at_s
    last = math.nextafter(change_at, 0) if math.isfinite(change_at) else at_s + 1e6
    for share in (0, 0.3, 0.9, 1):
        between = min(at_s + share * (last - at_s), last)
        assert presence.look(client, between) == (state, change_at)


@every_case
@few
@given(client=clients, at_s=instants, step_s=st.floats(0, 1e5))
def test_changes_never_go_back_in_time(
    case: tuple[str, int], folder: Path, client: int, at_s: float, step_s: float
) -> None:
    presence = bound(case, folder)
    assert presence.look(client, at_s)[1] <= presence.look(client, at_s + step_s)[1]


@every_case
def test_everybody_stays_or_many_come_or_go_within_the_time_scale(
    case: tuple[str, int], folder: Path
) -> None:
    presence = bound(case, folder)
    changes_s = [presence.look(client, 0.0)[1] for client in range(NUM)]
    if presence.time_scale_s is None:
        assert all(map(math.isinf, changes_s))
    else:
        within = sum(change_s <= presence.time_scale_s for change_s in changes_s)
        assert within >= NUM / 4  # of durations that spread widely, few make up most of the time


@every_case
@few
@given(at_s=instants, chosen=st.lists(clients, max_size=8))
def test_all_at_once_is_one_by_one(
    case: tuple[str, int], folder: Path, at_s: float, chosen: list[int]
) -> None:
    presence = bound(case, folder)
    together = presence.available(np.array(chosen, np.int64), at_s)
    assert together.dtype == np.bool_
    assert together.tolist() == [presence.look(client, at_s)[0] for client in chosen]


@every_case
@few
@given(questions=st.lists(st.tuples(clients, instants), min_size=1, max_size=6))
def test_answers_depend_on_key_client_and_instant_alone(
    case: tuple[str, int], folder: Path, questions: list[tuple[int, float]]
) -> None:
    # Two arguments or three: the cache takes them for different calls, so it is bound twice.
    used, fresh = bound(case, folder), bound(case, folder, 0)
    first = [used.look(*question) for question in questions]
    again = [fresh.look(*question) for question in reversed(questions)]
    assert first == again[::-1]


@every_case
def test_a_second_binding_gives_the_same_and_other_keys_give_others(
    case: tuple[str, int], folder: Path
) -> None:
    plugin = plugin_of(case, folder)
    times = [0.0, 7.25, 1e3, 1e5, 1e6]

    def seen(presence: Availability) -> list[list[bool]]:
        return [presence.available(np.arange(NUM), at_s).tolist() for at_s in times]

    first = seen(bound(case, folder))
    assert seen(plugin.bind(NUM, Key.root(0))) == first
    differs = seen(plugin.bind(NUM, Key.root(1))) != first
    never_away = case == ("always", 0) or case == ("duty_cycle", 2)
    assert differs is not never_away


@every_case
def test_clients_of_other_types_of_integer_are_the_same_clients(case: tuple[str, int], folder: Path) -> None:
    presence = bound(case, folder)
    expected = presence.available(np.arange(NUM), 12345.678)
    for kind in (np.int32, np.uint8):
        assert np.array_equal(presence.available(np.arange(NUM, dtype=kind), 12345.678), expected)


@every_case
@pytest.mark.parametrize("client", [-1, NUM])
def test_there_are_no_others(case: tuple[str, int], folder: Path, client: int) -> None:
    presence = bound(case, folder)
    with pytest.raises(IndexError, match=f"no client {client}: there are 0 to {NUM - 1}"):
        presence.look(client, 0.0)
    with pytest.raises(IndexError, match=f"no client {client}: there are 0 to {NUM - 1}"):
        presence.available(np.array([0, client]), 0.0)


@every_case
@pytest.mark.parametrize("at_s", [-1e-9, math.inf, math.nan, 2.0**42])
def test_there_are_no_other_instants(case: tuple[str, int], folder: Path, at_s: float) -> None:
    presence = bound(case, folder)
    with pytest.raises(ValueError, match="no instant of a run"):
        presence.look(0, at_s)
    with pytest.raises(ValueError, match="no instant of a run"):
        presence.available(np.array([0]), at_s)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("renewal", {"on": "5 s", "off": "9 s"}),
        ("diurnal", {"keeps": "20 min", "swing": 1, "share": 0.5}),
        ("diurnal", {"keeps": "20 min"}),
    ],
)
def test_the_end_of_the_loop_is_a_moment_like_any_other(
    name: str, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.fleet.availability.on_off_periods.CYCLES", 2)
    plugin = load(FOLDER, name)
    presence = plugin(plugin.Config.model_validate(settings)).bind(20, Key.root(0))  # type: ignore[attr-defined]
    states = set()
    for client in range(20):
        at_s = 0.0
        for _ in range(40):
            state, change_at = presence.look(client, at_s)
            for share in (0.25, 0.5, 0.75):
                between = at_s + share * (change_at - at_s)
                assert presence.look(client, between) == (state, change_at)
            assert presence.look(client, math.nextafter(change_at, 0))[0] == state
            states.add(state)
            at_s = change_at
    assert states == {True, False}


@given(data=st.data(), at_s=instants)
def test_groups_answer_as_each_of_them_does(folder: Path, data: st.DataObject, at_s: float) -> None:
    sizes = {"renewal": 7, "always": 2, "diurnal": 5, "duty_cycle": 11}
    parts = [plugin_of((name, 0), folder).bind(num, Key.root(0)) for name, num in sizes.items()]
    whole = Grouped(parts)
    assert whole.num == 25
    places = [(part, offset) for part in parts for offset in range(part.num)]
    chosen = data.draw(st.lists(st.integers(0, 24), max_size=6))
    expected = [places[client][0].look(places[client][1], at_s)[0] for client in chosen]
    assert whole.available(np.array(chosen, np.int64), at_s).tolist() == expected
    for client in chosen:
        part, offset = places[client]
        assert whole.look(client, at_s) == part.look(offset, at_s)
