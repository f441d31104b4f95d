"""Feature tables from files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedsim.data import Spreading, federate
from fedsim.data.base import Dataset, LoadContext
from fedsim.data.partitions.iid import PLUGIN as IID
from fedsim.data.table import Table, TableConfig
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task

CSV = "age,who,label,height\n30,ann,yes,1.5\n40, bob,no,-2\n50,ann ,yes,1e1\n"


def load(root: Path, file: str = "t.csv", **settings: Any) -> Dataset:
    return Table(TableConfig(file=file, **settings)).load(LoadContext(root, 2, Key.root(0)))


def written(root: Path, text: str, file: str = "t.csv") -> Path:
    (root / file).write_text(text)
    return root


def values(array: Any) -> Any:
    return array.tolist()


def test_columns_of_numbers_a_class_and_a_user(tmp_path: Path) -> None:
    dataset = load(written(tmp_path, CSV), user="who")
    assert dataset.task == Task((2,), 2)
    assert values(dataset.x) == [[30, 1.5], [40, -2], [50, 10]]
    assert values(dataset.y) == [1, 0, 1]
    assert values(dataset.users) == [0, 1, 0]
    assert dataset.class_names == ("no", "yes")


def test_features_come_in_the_order_asked_for(tmp_path: Path) -> None:
    dataset = load(written(tmp_path, CSV), features=["height", "age"])
    assert values(dataset.x)[0] == [1.5, 30]


def test_whole_numbers_are_classes_in_the_order_of_their_values(tmp_path: Path) -> None:
    assert values(load(written(tmp_path, "a,label\n1,10\n1,9\n")).y) == [1, 0]
    assert values(load(written(tmp_path, "a,label\n1,010\n1,9\n")).y) == [0, 1]


def test_targets_of_a_regression(tmp_path: Path) -> None:
    dataset = load(written(tmp_path, "a,label\n1,0.5\n2,-3\n"), kind="regression")
    assert dataset.task == Task((1,), 1, "regression")
    assert values(dataset.y) == [0.5, -3]
    assert dataset.class_names is None


def test_parquet_and_npz_hold_the_same(tmp_path: Path) -> None:
    x, y, who = np.array([[1, 0.5], [0, 2]]), np.array([True, False]), np.array(["b", "a"])
    columns = {"p": x[:, 0].astype(bool), "q": x[:, 1], "label": y, "who": who}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", features=x, label=y, who=who)
    np.savez(tmp_path / "test.npz", features=x, label=y)
    for file in ("t.parquet", "t.npz"):
        dataset = load(tmp_path, file, user="who", test_file="test.npz" if file == "t.npz" else None)
        assert (values(dataset.x), values(dataset.y)) == (x.tolist(), [1, 0])
        assert values(dataset.users) == [1, 0]


def test_categories_of_pandas_are_texts(tmp_path: Path) -> None:
    label = pa.array(["b", "a"]).dictionary_encode()
    parquet.write_table(pa.table({"a": [1, 2], "label": label}), tmp_path / "t.parquet")
    assert values(load(tmp_path, "t.parquet").y) == [1, 0]


def test_a_test_part_has_the_same_columns_in_any_order(tmp_path: Path) -> None:
    written(tmp_path, CSV)
    written(tmp_path, "label,height,age\nmaybe,1,2\n", "test.csv")
    dataset = load(tmp_path, test_file="test.csv", features=["age", "height"])
    assert dataset.task.num_outputs == 3
    assert values(dataset.test_x) == [[2, 1]]
    assert values(dataset.test_y) == [0]
    assert values(dataset.y) == [2, 1, 2]


def test_whole_numbers_are_texts_where_the_other_file_has_texts(tmp_path: Path) -> None:
    written(tmp_path, "a,label\n1,x\n", "test.csv")
    dataset = load(written(tmp_path, "a,label\n1,9\n1,10\n"), test_file="test.csv")
    assert (values(dataset.y), values(dataset.test_y)) == ([1, 0], [2])


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        ("a,label\n1,x\nhi,y\n", {}, "row 2, column 'a': 'hi' is not a number"),
        ("a,label\n1,x\n,y\n", {}, "row 2, column 'a': the cell is empty"),
        ("a,label\n1,x\n2,\n", {}, "row 2, column 'label': the cell is empty"),
        ("a,label\nnan,x\n", {}, "row 1, column 'a': nan is not finite"),
        ("a,label\n1e39,x\n", {}, r"row 1, column 'a': 1e\+39 is not finite, or too large for 32 bits"),
        ("a,label\n1,x\n", {"kind": "regression"}, "row 1, column 'label': 'x' is not a number"),
        ("a,b\n1,x\n", {}, "no column 'label', but a, b; name the one you mean with label"),
        ("a,label\n1,x\n", {"user": "u"}, "no column 'u'"),
        ("a,label\n1,x\n", {"features": ["b"]}, "no column 'b'.*with features"),
        ("a,label\n1,2\n", {"features": ["a", "label"]}, "the label 'label' is among the features"),
        ("label\nx\n", {}, "no columns of features"),
        ("a,label\n", {}, "no rows"),
        ("", {}, "cannot be read as a table: Empty CSV file"),
        ("a,a,label\n1,2,x\n", {}, "two columns are called 'a'"),
        ("a,label\n1,x\n2\n", {}, "Row #3: Expected 2 columns, got 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_row_and_column(
    tmp_path: Path, text: str, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        load(written(tmp_path, text), **settings)


def test_the_setting_to_change_is_named(tmp_path: Path) -> None:
    for settings, setting in (({"label": "x"}, "label"), ({"test_file": "none.csv"}, "test_file")):
        with pytest.raises(DataError) as caught:
            load(written(tmp_path, CSV), features=["age"], **settings)
        assert caught.value.setting == setting


def test_a_file_of_another_form(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"give a \.csv, \.csv\.gz, \.parquet or \.npz file"):
        load(written(tmp_path, "", "t.xlsx"), "t.xlsx")
    with pytest.raises(DataError, match="cannot be read as a table"):
        load(written(tmp_path, "no", "t.parquet"), "t.parquet")


def test_targets_are_no_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", features=np.ones((2, 1)), label=np.array([1, 0.5]))
    with pytest.raises(DataError, match=r"row 2, column 'label': 0\.5 is no class.*regression"):
        load(tmp_path, "t.npz")


@pytest.mark.parametrize(
    ("features", "label", "problem"),
    [
        (np.ones(3), np.ones(3), r"shape \(3,\); features are \(rows, columns\)"),
        (
            np.ones((3, 2)),
            np.ones(2),
            r"'label' of .* has the shape \(2,\); give one value for each of the 3",
        ),
        (np.array([["1"], ["x"]]), np.ones(2), r"row 2, column 'features\[0\]': 'x' is not a number"),
        (np.ones((2, 2), complex), np.ones(2), "cannot be read as a table"),
    ],
)
def test_arrays_of_another_form(tmp_path: Path, features: Any, label: Any, problem: str) -> None:
    np.savez(tmp_path / "t.npz", features=features, label=label)
    with pytest.raises(DataError, match=problem):
        load(tmp_path, "t.npz")


def test_a_npz_has_one_array_of_features(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.ones((2, 3)), label=np.ones(2))
    assert load(tmp_path, "t.npz", features=["x"]).task.input_shape == (3,)
    with pytest.raises(DataError, match="its features in one array: name that alone"):
        load(tmp_path, "t.npz", features=["x", "y"])


def test_features_are_standardised_over_the_training_samples_alone(tmp_path: Path) -> None:
    rows = "".join(f"{10 * row},7,{row % 2}\n" for row in range(40))
    dataset = load(written(tmp_path, "a,b,label\n" + rows), standardise=True)
    spreading = Spreading(2, (0.5, 0.25, 0.25), global_test_share=0.25)
    data = federate(dataset, IID(IID.Config()), spreading, Key.root(1))
    train = data.x[data.pooled("train")]
    assert train.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert train.std(axis=0) == pytest.approx([1, 0], abs=1e-6)
    assert abs(float(data.x[:, 0].mean())) > 1e-3
    assert data.x.dtype == np.float32
