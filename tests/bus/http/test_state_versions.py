from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus.http.state_versions import StateVersions

DISPATCHES = st.lists(st.integers(0, 30), min_size=1, unique=True).map(sorted)


def of(dispatches: dict[int, list[int]]) -> tuple[StateVersions, list[tuple[int, int]]]:
    removed: list[tuple[int, int]] = []
    versions = StateVersions(lambda *place: removed.append(place))
    for client, its in dispatches.items():
        for dispatch in its:
            versions.add(client, dispatch)
    return versions, removed


def test_states_go_back_with_a_server() -> None:
    versions, removed = of({0: [1, 3, 6], 1: [0], 2: [4]})
    assert [versions.newest(client) for client in range(4)] == [6, 0, 4, None]
    versions.go_back({0: 4, 2: 5})
    assert removed == [(0, 6), (1, 0)]
    versions.rewind(0, 3)
    versions.rewind(9, 0)
    assert [versions.newest(client) for client in range(4)] == [1, None, 4, None]


def test_the_newest_state_before_each_mark_is_kept_and_all_later_ones() -> None:
    versions, removed = of({0: [1, 2, 3, 5, 6, 8, 9]})
    versions.forget({0: [3, 7], 4: [1]})  # the states of marks are those after 2 and after 6
    assert removed == [(0, 1), (0, 3), (0, 5)]
    versions.forget({0: [7]})
    assert removed[3:] == [(0, 2)]


@given(dispatches=DISPATCHES, marks=st.lists(st.integers(0, 31), min_size=1), data=st.data())
def test_what_is_forgotten_makes_no_difference_to_who_goes_back(
    dispatches: list[int], marks: list[int], data: Any
) -> None:
    mark = data.draw(st.sampled_from([*marks, *range(max(marks), 33)]))
    newest = []
    for forgets in (False, True):
        versions, _ = of({0: dispatches})
        if forgets:
            versions.forget({0: marks})
        versions.go_back({0: mark})
        newest.append(versions.newest(0))
    assert newest[0] == newest[1]
