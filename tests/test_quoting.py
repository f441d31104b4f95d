from hypothesis import given
from hypothesis import strategies as st

from fedsim.quoting import MAX_QUOTED, quoted, shortened

ANYTHING = st.one_of(st.text(), st.integers(), st.lists(st.floats()), st.binary())


def test_what_is_short_stays_as_it_is() -> None:
    assert shortened("a" * 80) == "a" * 80
    assert quoted("it's") == '"it\'s"'
    assert quoted(("a", 1)) == "('a', 1)"


def test_what_is_long_ends_with_dots() -> None:
    assert shortened("a" * 81) == "a" * 76 + " ..."
    assert shortened("abcdefghij", 8) == "abcd ..."
    assert quoted("a" * 100_000, 8) == "'aaaa' ..."
    assert quoted([0] * 100_000, 8) == "[0,  ..."


@given(ANYTHING)
def test_nothing_is_longer_than_it_may_be(value: object) -> None:
    assert len(shortened(value)) <= MAX_QUOTED
    # Of a text the characters are counted, before those that cannot be printed are spelt.
    assert len(quoted(value)) <= 10 * MAX_QUOTED + 6
