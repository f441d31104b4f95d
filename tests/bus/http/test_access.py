from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus.http.access import ALL_CLIENTS, MAX_CLIENT, Access, ClientRanges, new_token
from fedsim.errors import UserError

numbers = st.sets(st.integers(0, 40), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("12, 0-9", ((0, 9), (12, 12))),
        ("3,1,2", ((1, 3),)),
        ("0-5,3-9", ((0, 9),)),
        (f"0-{MAX_CLIENT}", ((0, MAX_CLIENT),)),
    ],
)
def test_ranges_are_read_sorted_and_joined(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert ClientRanges.parse(text).ranges == ranges
    assert "3" not in ClientRanges.parse(text)  # no client has such a number


NO_RANGES = ("", "x", "1-", "-1", "3-1", "1,,2", "1.5", "²", str(MAX_CLIENT + 1), "1-2-3", "9" * 100)


def test_what_is_no_range_is_refused() -> None:
    for text in NO_RANGES:
        with pytest.raises(UserError, match="clients"):
            ClientRanges.parse(text)
    with pytest.raises(UserError, match="at most 65536"):
        ClientRanges.parse(",".join(str(2 * number) for number in range(65_537)))


@given(numbers, numbers)
def test_ranges_behave_as_sets(one: set[int], other: set[int]) -> None:
    mine, its = (ClientRanges.parse(",".join(map(str, numbers))) for numbers in (one, other))
    assert list(mine) == sorted(one)
    assert len(mine) == len(one)
    assert [number in mine for number in range(-1, 42)] == [number in one for number in range(-1, 42)]
    assert mine.covers(its) == (other <= one)
    assert mine.highest == max(one)
    assert ClientRanges.parse(str(mine)) == mine


def test_a_token_grants_its_clients_and_the_file_does_not_hold_it(tmp_path: Path) -> None:
    clients = ClientRanges.parse("0-4,9")
    secret, line = new_token(clients)
    other, other_line = new_token(ClientRanges.parse("5"))
    path = tmp_path / "tokens"
    path.write_text(f"# site A\n{line}\n\n{other_line}  # site B\n")
    access = Access.from_file(path)
    assert secret != other
    assert access.grant(secret) == clients
    assert access.grant(other) == ClientRanges.parse("5")
    assert secret not in path.read_text()
    for wrong in (None, "", secret[:-1], secret + "x", "x" * 1000, "\udcff", line.split()[0]):
        assert access.grant(wrong) is None
    assert not access.is_open
    assert Access.open().grant(None) == ALL_CLIENTS


@pytest.mark.parametrize(
    ("problem", "texts"),
    [
        ("holds no token", ["", "# nothing"]),
        ("line 1: not a token", ["sha256:abc 0-9", f"sha256:{'g' * 64} 0-9", f"md5:{'0' * 64} 0-9"]),
        ("line 2: not a token", [f"\nsha256:{'0' * 64}"]),
        ("'x' is no client number", [f"sha256:{'0' * 64} x"]),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, problem: str, texts: list[str]) -> None:
    path = tmp_path / "tokens"
    with pytest.raises(UserError, match="fedsim token new"):
        Access.from_file(path)
    for text in texts:
        path.write_text(text)
        with pytest.raises(UserError, match=problem):
            Access.from_file(path)
