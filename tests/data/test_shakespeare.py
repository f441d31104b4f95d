"""A play's speakers and their next characters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.shakespeare import Shakespeare, ShakespeareConfig
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

PLAY = "Zoe:\nab\n\nAl:\nbba\n\nZoe:\nca\nd\n\n\n"
"""Zoe says ``ab``, ``ca`` and ``d``; Al says ``bba``."""


def load(root: Path, text: str = PLAY, **settings: Any) -> Dataset:
    (root / "play.txt").write_text(text)
    config = ShakespeareConfig.model_validate({"file": "play.txt", "length": 2, "stride": 1} | settings)
    return Shakespeare(config).load(LoadContext(root, 2, Key.root(0)))


def said(dataset: Dataset, text: str = PLAY) -> list[tuple[int, str]]:
    """Return each sample's user, and its characters with the next one."""
    characters = "?" + "".join(sorted(set(text)))
    rows = np.column_stack([held(dataset.x), held(dataset.y)])
    return [
        (int(user), "".join(characters[token] for token in row))
        for user, row in zip(there(dataset.users), rows, strict=True)
    ]


def test_windows_of_what_each_speaker_says(tmp_path: Path) -> None:
    dataset = load(tmp_path)
    assert dataset.task == Task((2,), 90, vocabulary=90)
    expected = [(0, "bba")] + [(1, "ab\nca\nd"[at : at + 3]) for at in range(5)]
    assert said(dataset) == expected
    assert dataset.test_x is None


def test_a_byte_order_mark_is_no_character(tmp_path: Path) -> None:
    assert said(load(tmp_path, "\ufeff" + PLAY)) == said(load(tmp_path))


def test_line_ends_of_other_systems_are_line_ends(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_bytes(PLAY.replace("\n", "\r\n").encode())
    assert said(load(tmp_path, file="other.txt")) == said(load(tmp_path))


def test_a_stride_skips_windows(tmp_path: Path) -> None:
    assert said(load(tmp_path, stride=3)) == [(0, "bba"), (1, "ab\n"), (1, "ca\n")]


def test_characters_are_numbered_from_1_in_order(tmp_path: Path) -> None:
    dataset = load(tmp_path, "A:\nba\n\n", length=1)
    # The file has, in order: line end, colon, A, a, b.
    assert (held(dataset.x).tolist(), held(dataset.y).tolist()) == ([[5]], [4])


def test_rare_characters_are_unknown(tmp_path: Path) -> None:
    dataset = load(tmp_path, "A:\nabcbb\n\nA:\nbba\n", vocabulary=3, length=3)
    assert dataset.task == Task((3,), 3, vocabulary=3)
    # The line end occurs 5 times, b 5 times, the others at most twice.
    assert held(dataset.x)[:2].tolist() == [[0, 2, 0], [2, 0, 2]]


def test_speakers_with_few_samples_are_left_out(tmp_path: Path) -> None:
    assert {user for user, _ in said(load(tmp_path, min_samples=2))} == {0}
    with pytest.raises(DataError, match=r"no speaker of .* has 6 samples of 2 characters") as caught:
        load(tmp_path, min_samples=6)
    assert caught.value.setting == "min_samples"
    with pytest.raises(DataError, match="lower length") as caught:
        load(tmp_path, length=7)
    assert caught.value.setting == "length"


@pytest.mark.parametrize(("text", "line"), [("Al:\nb\n\nand so on\n", 4), ("\nno name\n", 2), (":\nb\n", 1)])
def test_a_speech_without_a_speaker(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(DataError, match=f"line {line}: .* begins a speech") as caught:
        load(tmp_path, text)
    assert caught.value.setting == "file"


def test_files_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no other.txt: looked in "):
        load(tmp_path, file="other.txt")
    (tmp_path / "latin.txt").write_bytes(b"Al:\n\xe9\n")
    with pytest.raises(DataError, match="cannot be read as text in UTF-8"):
        load(tmp_path, file="latin.txt")
    with pytest.raises(DataError, match="no speaker"):
        load(tmp_path, "")
