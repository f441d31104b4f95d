"""Codecs of predictions, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import DecodeError
from fedsim.rng import Key
from tests.wire.codecs.conftest import Make, drawn, floats, num_bytes


def test_hard_labels_have_one_margin(make: Make) -> None:
    chain = make("hard_labels")
    coded = chain.encode({"": np.array([[3, 1, 1], [0, 0, 6]], np.float32)}, Key.root(0)).tree
    assert (coded["+0"].tolist(), coded["+1"].tolist()) == ([0, 2], [4.0])  # the mean of 2 and 6
    assert chain.decode(coded).tree[""].tolist() == [[4, 0, 0], [0, 0, 4]]


def test_of_probabilities_they_are_one_hot_times_the_margin(make: Make) -> None:
    chain = make("hard_labels")
    rows = chain.decode(chain.encode({"": np.array([[0.9, 0.1]], np.float32)}, Key.root(0)).tree).tree[""]
    assert rows.tolist() == [[pytest.approx(0.8), 0]]


def test_top_classes_keep_the_sum_of_a_row(make: Make) -> None:
    chain = make({"name": "top_classes", "params": {"classes": 1}})
    coded = chain.encode({"": np.array([[1, 5, 2, 0]], np.float32)}, Key.root(0)).tree
    assert coded["+0"].tolist() == [[1]]
    assert chain.decode(coded).tree[""].tolist() == [[1, 5, 1, 1]]


def test_bytes_are_the_formula(make: Make) -> None:
    values = {"": drawn(50, 10)}
    assert num_bytes(make("hard_labels").encode(values, Key.root(0)).tree) == 50 + 4
    top = make({"name": "top_classes", "params": {"classes": 3}}).encode(values, Key.root(0)).tree
    assert num_bytes(top) == 50 * 3 + 50 * 4 * 4


def test_many_classes_take_two_bytes(make: Make) -> None:
    assert make("hard_labels").encode({"": drawn(3, 300)}, Key.root(0)).tree["+0"].dtype == "<u2"


@pytest.mark.parametrize("name", ["hard_labels", "top_classes"])
def test_a_class_that_does_not_exist_is_refused(make: Make, name: str) -> None:
    empty = np.empty((0, 1, 3), np.float32)
    labels = np.array([3], np.uint8) if name == "hard_labels" else np.array([[0, 1, 3]], np.uint8)
    values = floats(1) if name == "hard_labels" else floats(1, 2, 3, 4).reshape(1, 4)
    with pytest.raises(DecodeError):
        make(name).decode({"": empty, "+0": labels, "+1": values})
