"""What a client process reports beside replies: notes that anybody can read, and nothing else."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.bus.reply_report import _OWN, MAX_NOTES, MAX_NOTES_TEXT, Note, in_words, read, written

CHOSEN = Note("info", "student chosen", {"teacher_round": 3, "weight": 0.5, "found": True, "why": None})
WARNED = Note("warning", "no validation samples", {"instead": "training loss"})

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=400)
notes = st.builds(
    Note,
    st.sampled_from(["info", "warning"]),
    st.text(max_size=300),
    st.dictionaries(st.text(min_size=1, max_size=60), plain | st.lists(plain), max_size=20),
)


@given(st.lists(notes, max_size=30))
def test_whatever_is_noted_can_be_read(said: list[Note]) -> None:
    text = written([*map(in_words, said)])
    assert (text is None) == (not said)
    text = text or "[]"
    assert len(text) <= MAX_NOTES_TEXT
    assert text.isascii()
    found = read(text)
    left_out = [note.values["count"] for note in found if note.event == "notes left out"]
    assert len(found) - len(left_out) + sum(left_out) == len(said)
    ordered = map(in_words, said)
    assert all(its in ordered for its in found[: len(found) - len(left_out)])  # some, in their order
    assert all(in_words(its) == its for its in found)


@pytest.mark.parametrize("odd", "\u2028\u2029\x85\n\r\x1c\x9b\x1b\0\u202e\ud800")
def test_a_note_is_one_line_of_the_log(odd: str) -> None:
    instead = " " if odd in "\u2028\u2029\x85\n\r\x1c" else "?"
    (note,) = read(written([in_words(Note("info", f"a{odd}b", {"c": f"d{odd}é"}))]))
    assert note == ("info", f"a{instead}b", {"c": f"d{instead}é"})
    for said in (["info", f"a{odd}b", {}], ["info", "x", {"c": f"d{odd}é"}]):
        with pytest.raises(ValueError, match="is no"):
            read(json.dumps([said]))


def test_values_that_no_text_holds_are_put_into_words() -> None:
    values = {"a": np.float32(0.5), "b": float("nan"), "c": 2**70, "d": [1, 2], "Level": 3, "level": 4}
    values["2"] = "\ud800"
    (note,) = read(written([in_words(Note("info", "x", values))]))
    assert note.values == {"a": 0.5, "b": None, "c": str(2**70), "d": "[1, 2]", "level_": 4, "v2": "?"}


def test_what_is_too_much_is_left_out_and_counted() -> None:
    def left_out(count: int) -> Note:
        return Note("warning", "notes left out", {"count": count})

    long = Note("info", "x", {f"v{number}": "é" * 300 for number in range(16)})
    assert len(json.dumps(in_words(long))) > MAX_NOTES_TEXT  # and does not hide those that follow
    several = [long._replace(values=dict.fromkeys(long.values, "y" * 300))] * 3
    assert read(written([WARNED] * 40)) == [WARNED] * MAX_NOTES + [left_out(40 - MAX_NOTES)]
    assert read(written(several)) == [several[0], left_out(2)]
    assert read(written([WARNED], left_out=7)) == [WARNED, left_out(7)]
    assert read(written([long, CHOSEN, long, WARNED])) == [CHOSEN, WARNED, left_out(2)]


VALUES: tuple[Any, ...] = ([1], {}, "y" * 301, "\udfff", "\x9b", float("inf"), 2**63)
PARTS: list[Any] = [
    *("note", ["info", "x"], ["error", "x", {}], [["info"], "x", {}], ["info", "x", []]),
    *(["info", event, {}] for event in (3, "x" * 201, "\ud800", "a\u2028b")),
    *(["info", "x", {"a": value}] for value in VALUES),
    *(["info", "x", {name: 1}] for name in (*sorted(_OWN), "A", "", "a b")),
    ["info", "x", {f"a{number}": 1 for number in range(17)}],
]
BAD = [
    *(7, "", "no JSON", "[" * 5000, "1" * 5000, '{"a": 1}', " " * (MAX_NOTES_TEXT + 1)),
    *(json.dumps([part]) for part in PARTS),
    json.dumps([["info", "x", {}]] * (MAX_NOTES + 2)),
]


def test_what_is_no_note_is_refused() -> None:
    for text in BAD:
        with suppress(ValueError):
            pytest.fail(f"{text!r:.200} was read as {read(text)}")


def test_no_name_that_the_log_uses_is_free() -> None:
    used = ["args", "at_s", "client", "event", "exc_info", "level", "method_name", "self", "stack_info"]
    assert sorted(_OWN) == [*used, "told_by"]
    (note,) = read(written([in_words(Note("info", "x", dict.fromkeys(sorted(_OWN), 1)))]))
    assert list(note.values) == [f"{name}_" for name in sorted(_OWN)]
