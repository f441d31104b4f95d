import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DataError
from fedsim.fleet.availability.base import Availability
from fedsim.fleet.availability.trace import PLUGIN, TraceConfig
from fedsim.rng import Key

INTERVALS = """# two phones, made up
client,on_at_s,off_at_s
b,4,5
a,0,2
a,6,8
"""


def bound(folder: Path, text: str, num: int = 1, **settings: object) -> Availability:
    (folder / "t.csv").write_text(text)
    config = TraceConfig.model_validate({"file": str(folder / "t.csv"), **settings})
    return PLUGIN(config).bind(num, Key.root(0))


def states(presence: Availability, client: int, stop: int) -> str:
    return "".join(str(int(presence.look(client, float(at_s))[0])) for at_s in range(stop))


def changes(presence: Availability, client: int, until: float) -> list[float]:
    found, at_s = list[float](), 0.0
    while (at_s := presence.look(client, at_s)[1]) < until:
        found.append(at_s)
    return found


def test_intervals_repeat_from_the_end_of_the_last(tmp_path: Path) -> None:
    presence = bound(tmp_path, INTERVALS, 2)
    by_states = {states(presence, client, 20): client for client in range(2)}
    assert set(by_states) == {"11000011110000111100", "00001000000010000000"}
    assert changes(presence, by_states["11000011110000111100"], 20) == [2, 6, 10, 14, 18]
    assert changes(presence, by_states["00001000000010000000"], 20) == [4, 5, 12, 13]


def test_intervals_repeat_as_often_as_asked(tmp_path: Path) -> None:
    presence = bound(tmp_path, INTERVALS, 2, repeat="10 s")
    assert {states(presence, client, 12) for client in range(2)} == {"110000110011", "000010000000"}


def test_an_interval_that_follows_at_once_is_no_change(tmp_path: Path) -> None:
    presence = bound(tmp_path, "client,on_at_s,off_at_s\na,0,1\na,1,2\na,3,4\n")
    assert changes(presence, 0, 8) == [2, 3, 6, 7]
    assert states(presence, 0, 8) == "11011101"
    always = bound(tmp_path, "client,on_at_s,off_at_s\na,0,1\na,1,2\n")
    assert always.look(0, 0.5)[1] == math.inf
    assert always.look(0, 12345.6)[0]


def test_states_at_regular_instants(tmp_path: Path) -> None:
    presence = bound(tmp_path, "client,step_s,states\na,2,0110\n")
    assert states(presence, 0, 12) == "001111000011"
    assert changes(presence, 0, 16) == [2, 6, 10, 14]


def test_a_plain_grid(tmp_path: Path) -> None:
    presence = bound(tmp_path, "1, 0, 1\n# a comment\n0,0,0\n", 2, step="1 min")
    patterns = {"".join(str(int(presence.look(c, 60.0 * i)[0])) for i in range(6)) for c in range(2)}
    assert patterns == {"101101", "000000"}


@given(st.lists(st.text("01", min_size=5, max_size=5), min_size=1, max_size=4), st.integers(1, 30))
def test_a_grid_is_replayed_state_by_state(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], num: int
) -> None:
    text = "\n".join(",".join(line) for line in lines)
    presence = bound(tmp_path_factory.getbasetemp(), text, num, step="1 s")
    replayed = [states(presence, client, 5) for client in range(num)]
    assert set(replayed) <= set(lines)
    assert all(states(presence, client, 10)[5:] == replayed[client] for client in range(num))
    # Everybody's recording is used equally often, to within one.
    times = [sum(one == line for one in replayed) / lines.count(line) for line in set(lines)]
    assert max(times) - min(times) <= 1


def test_many_clients_share_few_recordings_in_a_drawn_order(tmp_path: Path) -> None:
    presence = bound(tmp_path, "0,1\n1,0\n", 1001, step="1 s")
    there = presence.available(np.arange(1001), 0.0)
    assert there.sum() in (500, 501)
    assert abs(np.corrcoef(there[1:], there[:-1])[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "t.csv: it is empty"),
        ("client,on,off\na,0,1\n", {}, "line 1: the first line is 'client,on,off': write"),
        ("client,on_at_s,off_at_s\n", {}, "line 1: no interval follows"),
        ("client,on_at_s,off_at_s\na,0\n", {}, "line 2: 2 cells, but the header has 3 columns"),
        ("client,on_at_s,off_at_s\na,0,1e10\n", {}, "line 2, column 'off_at_s': '1e10' is too large"),
        ("client,on_at_s,off_at_s\na,3,3\n", {}, "line 2, column 'off_at_s': 3 s does not come after 3 s"),
        (
            "client,on_at_s,off_at_s\na,3,3.0001\n",
            {},
            "line 2, column 'off_at_s': 3.0001 s is not 1/1024 s or more after 3 s",
        ),
        (
            "client,on_at_s,off_at_s\na,2,4\na,0,3\n",
            {},
            "line 2, column 'on_at_s': client 'a' is there already",
        ),
        ("client,on_at_s,off_at_s\na,2,4\n", {"repeat": "3 s"}, "line 2, column 'off_at_s': it ends after"),
        ("client,on_at_s,off_at_s\na,2,4\n", {"step": "3 s"}, "leave out 'step'"),
        ("client,step_s,states\n", {}, "line 1: no row follows"),
        ("client,step_s,states\na,1,01\n", {"repeat": "3 s"}, "leave out 'repeat'"),
        ("client,step_s,states\na,0,01\n", {}, "line 2, column 'step_s': '0' is zero"),
        ("client,step_s,states\na,1,01\nb,2,01\n", {}, "line 3, column 'step_s': 2 s, but line 2 has 1 s"),
        ("client,step_s,states\na,1,01\na,1,01\n", {}, "line 3, column 'client': client 'a' has its line"),
        ("client,step_s,states\na,1,01\nb,1,011\n", {}, "line 3: 3 states, but line 2 has 2"),
        ("client,step_s,states\na,1,012\n", {}, "line 2: '012' is not made of zeros and ones"),
        ("client,step_s,states\na,1,\n", {}, "line 2: '' is not made of zeros and ones"),
        ("0,1\n", {}, "line 1: a plain grid does not say how long a step is"),
        ("0,1\n0\n", {"step": "1 s"}, "line 2: 1 cells, but the header has 2"),
        ("0,1\n0,2\n", {"step": "1 s"}, "line 2: '02' is not made of zeros and ones"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_line(
    tmp_path: Path, text: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        bound(tmp_path, text, **settings)
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*/none\.csv"):
        PLUGIN(TraceConfig(file=str(tmp_path / "none.csv"))).bind(1, Key.root(0))
