"""Tables of classes: two evaluations by hand."""

from typing import Any

import numpy as np

from fedsim.bus import Totals
from fedsim.data import FederatedData
from fedsim.data.federated import Holdings
from fedsim.engine.confusion import Confusion
from fedsim.report.tables import classes, client_classes, confusion
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.records.result import RoundRow
from fedsim.task import Task
from tests.conftest import there

NOTHING = np.empty(0)


def of(pairs: list[tuple[int, int]]) -> Confusion:
    labels, predicted = np.array(pairs).T
    return Confusion.of(labels, predicted, 3)


def row(number: int, **pairs: list[tuple[int, int]]) -> RoundRow:
    """Return a round; with pairs of true and predicted class it was evaluated, out of three classes."""
    counted = {name: of(some) for name, some in pairs.items()}
    accuracy = Accuracy(NOTHING, NOTHING, NOTHING, None, NOTHING, None, confusions=counted)
    return RoundRow(number, 0.0, 1.0, 0, 0, 0, 0, 0, Totals(), accuracy if pairs else None)


ROWS = [row(1, clients=[(0, 0), (0, 2), (0, 2)], **{"global": [(1, 1)]}), row(2), row(3, clients=[(2, 2)])]


def lists(columns: Any) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in columns.items()}


def test_a_row_for_each_class_that_has_samples_or_is_predicted() -> None:
    found: Any = dict(classes(ROWS, ("cat", "dog", "emu")))
    np.testing.assert_equal(found.pop("precision"), [1, 0, 1, 1])
    np.testing.assert_equal(found.pop("recall"), [1 / 3, np.nan, 1, 1])
    np.testing.assert_equal(found.pop("f1"), [1 / 2, 0, 1, 1])
    assert lists(found) == {
        "round": [1, 1, 1, 3],
        "test_set": ["clients", "clients", "global", "clients"],
        "class": [0, 2, 1, 2],
        "class_name": ["cat", "emu", "dog", "emu"],
        "num_samples": [3, 0, 1, 1],
        "num_predicted": [1, 2, 1, 1],
        "num_correct": [1, 0, 1, 1],
    }
    assert classes(ROWS, None)["class_name"].tolist() == ["0", "2", "1", "2"]


def test_a_row_for_each_pair_of_classes_with_samples() -> None:
    assert lists(confusion(ROWS)) == {
        "round": [1, 1, 1, 3],
        "test_set": ["clients", "clients", "global", "clients"],
        "true_class": [0, 0, 1, 2],
        "predicted_class": [0, 2, 1, 2],
        "num_samples": [1, 2, 1, 1],
    }


def data_of(held: list[list[int]] | None, **task: Any) -> FederatedData:
    """Return data of clients who hold these positions of a pool with the labels 2, 0, 2, 1."""
    sizes = [len(own) for own in held] if held is not None else [3, 1]
    offsets = np.cumsum([0, *sizes])
    flat = None if held is None else np.array([one for own in held for one in own], np.int64)
    none = Holdings(np.zeros(len(sizes) + 1, np.int64), None if held is None else np.empty(0, np.int64))
    return FederatedData(
        Task((1,), 3, **task),
        np.zeros((4, 1), np.float32),
        np.array([2, 0, 2, 1]),
        public=np.empty(0, np.int64),
        global_test=np.empty(0, np.int64),
        num_clients=len(sizes),
        holdings={"train": Holdings(offsets, flat), "val": none, "test": none},
        class_names=("cat", "dog", "emu"),
    )


def test_a_row_for_each_client_and_class_that_it_has_samples_of() -> None:
    found = there(client_classes(data_of([[0, 1, 2], [], [3]])))
    assert lists(found) == {
        "client": [0, 0, 2],
        "class": [0, 2, 1],
        "class_name": ["cat", "emu", "dog"],
        "num_samples": [1, 2, 1],
    }


def test_without_classes_nobody_holds_any() -> None:
    assert client_classes(data_of(None)) is None
    assert client_classes(data_of([[0], [1]], kind="regression")) is None
    assert client_classes(data_of([[0], [1]], vocabulary=3)) is None


def test_without_an_evaluation_there_are_columns_and_no_rows() -> None:
    for columns in (classes([row(1)], None), confusion([row(1)])):
        assert {len(values) for values in columns.values()} == {0}
