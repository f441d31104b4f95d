import pytest

from fedsim.report import number_format


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.15, "150 ms"),
        (59.9, "59.9 s"),
        (59.96, "1 min"),
        (60, "1 min"),
        (723, "12 min 3 s"),
        (3599.6, "1 h"),
        (3600, "1 h"),
        (7260, "2 h 1 min"),
        (86399.9, "1 d"),
        (90000, "1 d 1 h"),
    ],
)
def test_times_have_two_units_at_most(seconds: float | None, shown: str) -> None:
    assert number_format.duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (9999, "9999"),
        (2.5, "2.5"),
        (10_000, "10 k"),
        (999_600, "1 M"),
        (1_234_567, "1.23 M"),
        (5e9, "5 G"),
    ],
)
def test_counts(number: float | None, shown: str) -> None:
    assert number_format.count(number) == shown


def test_sizes_and_shares() -> None:
    assert number_format.size(1_230_000) == "1.23 MB"
    assert number_format.size(None) == "-"
    assert number_format.percent(0.9341, 0.0208) == "93.4 ± 2.1"
    assert number_format.percent(0.5) == "50.0"
    assert number_format.percent(None, 0.1) == "-"


@pytest.mark.parametrize(
    ("value", "largest", "shown"),
    [
        (10, 10, "1"),
        (0, 10, "0"),
        (0, 0, "0"),
        (9.9, 10, "1"),
        (4, 10, "1/2.5"),
        (10, 231, "1/23"),
        (1, 10450, "1/10000"),
    ],
)
def test_parts_of_the_largest(value: float, largest: float, shown: str) -> None:
    assert number_format.fraction(value, largest) == shown


def test_numbers_have_three_digits() -> None:
    shown = [
        number_format.number(None),
        number_format.number(0.012345),
        number_format.number(12.0),
        number_format.number(1.0, 0.123),
    ]
    assert shown == ["-", "0.0123", "12", "1 ± 0.12"]


def test_nouns_agree_with_their_numbers() -> None:
    assert [number_format.several(number, "round") for number in (0, 1, 2)] == [
        "0 rounds",
        "1 round",
        "2 rounds",
    ]


@pytest.mark.parametrize(
    ("passed_s", "share", "words"),
    [
        (10.0, 0.25, "about 30 s left"),
        (100.0, 0.5, "about 1 min 40 s left"),
        (0.001, 0.5, "about 1 s left"),
        (10.0, 0.0, ""),
        (10.0, 1.0, ""),
        (10.0, None, ""),
    ],
)
def test_how_much_time_is_left(passed_s: float, share: float | None, words: str) -> None:
    assert number_format.time_left(passed_s, share) == words
