"""Data sets of Hugging Face."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.hugging_face import HuggingFace, HuggingFaceConfig
from fedsim.errors import DataError
from fedsim.plugins import install_command
from fedsim.rng import Key
from fedsim.task import Task

CSV = "a,b,label,who\n1,2,no,x\n3,4,yes,y\n5,6,no,x\n"


def load(root: Path | None, **settings: Any) -> Dataset:
    config = HuggingFaceConfig(**({"name": "csv", "files": ["t.csv"], "x": ["a", "b"]} | settings))
    return HuggingFace(config).load(LoadContext(root, 2, Key.root(0)))


def values(array: Any) -> Any:
    return array.tolist()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=re.escape(install_command("datasets"))) as caught:
        load(None)
    assert caught.value.setting == "name"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table, and a cache in it; skips where the package is not installed."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = pytest.importorskip("datasets.config")
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "t.csv").write_text(CSV)
    return tmp_path


def test_columns_of_numbers_a_text_and_a_user(root: Path) -> None:
    dataset = load(root, user="who")
    assert dataset.task == Task((2,), 2)
    assert values(dataset.x) == [[1, 2], [3, 4], [5, 6]]
    assert values(dataset.y) == [0, 1, 0]
    assert dataset.class_names == ("no", "yes")
    assert values(dataset.users) == [0, 1, 0]


def test_one_column_of_numbers_and_whole_numbers_as_classes(root: Path) -> None:
    dataset = load(root, x=["a"], y="b")
    assert dataset.task == Task((1,), 7)
    assert values(dataset.y) == [2, 4, 6]
    assert dataset.class_names is None


def test_lists_of_whole_numbers_are_texts(root: Path) -> None:
    (root / "t.jsonl").write_text('{"x": [1, 4], "y": 0.5}\n{"x": [0, 2], "y": -1.0}\n')
    dataset = load(root, name="json", files=["t.jsonl"], x=["x"], y="y")
    assert dataset.task == Task((2,), 1, "regression", vocabulary=5)
    assert values(dataset.x) == [[1, 4], [0, 2]]


def test_lists_of_floats_of_several_lengths(root: Path) -> None:
    (root / "t.jsonl").write_text('{"x": [1.5, 4.0], "y": 0}\n{"x": [0.5], "y": 1}\n')
    with pytest.raises(DataError, match=r"item 1 of json is unlike item 0: its x is float32 \(1,\)"):
        load(root, name="json", files=["t.jsonl"], x=["x"], y="y")


@pytest.mark.parametrize(
    ("settings", "setting", "problem"),
    [
        ({"x": ["c"]}, "x", "no column 'c', but a, b, label, who; name the one you mean with x"),
        ({"y": "c"}, "y", "no column 'c'"),
        ({"user": "c"}, "user", "no column 'c'"),
        ({"x": ["who"]}, "split", "item 0 of csv: column 'who' holds the text 'x'"),
        ({"split": "rest"}, "split", "split 'rest' of csv cannot be loaded"),
        ({"files": ["none.csv"]}, "files", "there is no none.csv: looked in "),
    ],
)
def test_what_is_wrong_is_named(root: Path, settings: dict[str, Any], setting: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        load(root, **settings)
    assert caught.value.setting == setting


def test_empty_cells(root: Path) -> None:
    (root / "t.csv").write_text("a,b,label\n1,2,x\n3,,y\n")
    with pytest.raises(DataError, match="item 1 of csv: column 'b' is empty"):
        load(root)


def test_a_local_folder_is_looked_for_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sets" / "mine").mkdir(parents=True)
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path))
    assert HuggingFaceConfig(name="sets/mine").name == f"{tmp_path}/./sets/mine"
    assert HuggingFaceConfig(name="ylecun/mnist").name == "ylecun/mnist"


@pytest.mark.parametrize("name", ["./none", "../none", "none/"])
def test_a_folder_that_is_nowhere(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSIM_DATA", raising=False)
    monkeypatch.chdir(root)
    problem = f"there is no {name}: looked in {root} (FEDSIM_DATA is not set)"
    with pytest.raises(DataError, match=f"^{re.escape(problem)}$") as caught:
        load(None, name=name, files=None)
    assert caught.value.setting == "name"
