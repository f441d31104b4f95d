"""Labelled texts of users, from a table."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.texts import Texts, TextsConfig
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

TABLE = """user,label,text
zoe,good,"Don't stop, DON'T!"
al,bad,@bob stop #now
zoe,good,...
zoe,bad,to be or not to be
"""


def load(root: Path, table: str = TABLE, **settings: Any) -> Dataset:
    (root / "t.csv").write_text(table, "utf-8")
    config = TextsConfig.model_validate({"file": "t.csv", "length": 4, "vocabulary": 6} | settings)
    return Texts(config).load(LoadContext(root, 2, Key.root(0)))


def lists(dataset: Dataset) -> tuple[Any, Any, Any]:
    return held(dataset.x).tolist(), held(dataset.y).tolist(), there(dataset.users).tolist()


def test_words_become_tokens(tmp_path: Path) -> None:
    dataset = load(tmp_path)
    assert dataset.task == Task((4,), 2, vocabulary=6)
    x, y, users = lists(dataset)
    # Twice each: be, don't, stop, to; all others once, so they are unknown to a vocabulary of 2 + 4.
    assert x == [[3, 4, 3, 0], [1, 4, 1, 0], [0, 0, 0, 0], [5, 2, 1, 1]]
    assert y == [1, 0, 1, 0]
    assert users == [1, 0, 1, 1]
    assert dataset.class_names == ("bad", "good")


def test_a_larger_vocabulary_has_places_for_all(tmp_path: Path) -> None:
    x, _, _ = lists(load(tmp_path, vocabulary=100))
    # After the four frequent words: #now, @bob, not, or.
    assert x[1] == [7, 4, 6, 0]
    assert x[3] == [5, 2, 9, 8]


def test_a_packed_table_and_other_columns(tmp_path: Path) -> None:
    plain = lists(load(tmp_path))
    table = (tmp_path / "t.csv").read_text().replace("user,label,text", "who,mood,said")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(table.encode()))
    names = {"user": "who", "label": "mood", "text": "said"}
    assert lists(load(tmp_path, file="t.csv.gz", **names)) == plain


def test_users_with_few_texts_are_left_out_first(tmp_path: Path) -> None:
    x, y, users = lists(load(tmp_path, min_samples=2))
    assert (len(x), users) == (3, [0, 0, 0])
    assert y == [1, 1, 0]
    with pytest.raises(DataError, match=r"has 4 texts \(the most are 3\)") as caught:
        load(tmp_path, min_samples=4)
    assert caught.value.setting == "min_samples"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("user,label,text\na,0,x\n,1,y\n", "line 3: column 'user' is empty"),
        ("user,label,text\na, ,x\n", "line 2: column 'label' is empty"),
        ('user,label,text\nb,1,"two\nlines"\na,0\n', "line 4: column 'text' is empty"),
        ("user,label,text\na,0,x, y\n", "line 2: more cells than columns"),
        ('user,label,text\na,0,"x"y\n', "line 2: "),
        ("user,label,text\n", "has a line of column names but no texts"),
        ("", "has no column 'user', it has: ;"),
        ("user,mood,text\n", "no column 'label', it has: user, mood, text; name the one you mean with label"),
    ],
)
def test_rows_that_are_not_whole(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        load(tmp_path, table)
    assert caught.value.setting
