from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from fedsim.engine.cluster.packing import Failure, Loans, packed, packed_result, plain, trees_of, unpacked
from fedsim.engine.jobs import ClientSamples, Evaluate, Extra, Predict
from fedsim.errors import Fault, JobError, ScenarioError
from fedsim.params import Form, Model, PendingTree, freeze
from tests.engine.conftest import MakeFit

pytest.importorskip("ray")

LARGE = freeze({"w": np.ones((300, 100), np.float32)})
SMALL = freeze({"w": np.ones(3, np.float32)})


def test_large_trees_are_found_in_all_jobs(make_fit: MakeFit) -> None:
    large, small = Model("a", LARGE, {}), Model("a", SMALL, {})
    fit = make_fit(
        models={"one": large, "two": small}, extras={"more": Extra(LARGE), "row": Extra(SMALL["w"])}
    )
    assert list(trees_of(fit)) == [LARGE, LARGE]
    assert list(trees_of(Predict(large, ClientSamples(0), 4))) == [LARGE]
    assert list(trees_of(Evaluate(small, (ClientSamples(0),), 4))) == []


def test_what_is_left_out_comes_back_by_its_number(make_fit: MakeFit) -> None:
    fit = make_fit(models={"model": Model("a", LARGE, {})})
    octets = packed([fit, fit], {id(LARGE): 0})
    assert len(octets) < 10_000
    one, other = unpacked(octets, [LARGE])
    assert one.models["model"].params is LARGE is other.models["model"].params
    assert (one.seed, one.streams) == (fit.seed, fit.streams)


def test_large_arrays_of_results_stay_where_they_are_while_there_is_room() -> None:
    result = packed_result((LARGE, SMALL))
    assert [part.nbytes for part in result[1]] == [120_000]
    loans = Loans(most_bytes=200_000)
    (first, _), (second, small) = loans.read(result), loans.read(packed_result((LARGE, SMALL)))
    assert np.shares_memory(first["w"], result[1][0])
    assert loans.lent_bytes == 120_000
    for tree, expected in ((first, LARGE), (second, LARGE), (small, SMALL)):
        np.testing.assert_array_equal(tree["w"], expected["w"])
        assert not tree["w"].flags.writeable


def test_what_is_no_longer_used_makes_room() -> None:
    loans = Loans(most_bytes=200_000)
    for _ in range(3):
        octets, (array,) = packed_result(LARGE)
        tree = loans.read((octets, [array.view()]))  # as Ray gives it, which nobody else holds
        assert np.shares_memory(tree["w"], array)
        del tree


def test_results_come_back_frozen_and_in_memory_of_their_own() -> None:
    model = unpacked(packed(Model("a", SMALL, {})))
    assert not np.shares_memory(model.params["w"], SMALL["w"])
    np.testing.assert_array_equal(model.params["w"], SMALL["w"])
    assert not model.params["w"].flags.writeable


def test_a_pending_tree_travels_with_its_values() -> None:
    tree = PendingTree(Form.of(SMALL), lambda: SMALL)
    np.testing.assert_array_equal(unpacked(packed(tree))["w"], SMALL["w"])
    assert type(plain(tree)) is dict


def test_functions_of_a_notebook_travel() -> None:
    octets = packed(lambda: 3)
    assert unpacked(octets)() == 3


class TwoArgumentsError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class HoldingError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    "raised",
    [ValueError("no"), JobError("no"), TwoArgumentsError(1, 2), HoldingError("no"), KeyError("name")],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_has_the_name_and_the_text_of_what_was_raised(raised: Exception) -> None:
    error = unpacked(packed(Failure.of(raised))).error()
    assert type(error).__name__ == type(raised).__name__
    assert str(error) == str(raised)


def test_an_error_of_fedsim_stays_one() -> None:
    assert isinstance(Failure.of(JobError("no")).error(), JobError)


def test_what_lies_behind_an_error_is_kept() -> None:
    error = ValueError("outer")
    error.__cause__ = ScenarioError([Fault("a", "inner")])
    behind = Failure.of(error).error().__cause__
    assert type(behind).__name__ == "ScenarioError"
    assert "inner" in str(behind)


def test_a_failure_that_cannot_be_read_here_keeps_its_name() -> None:
    failure = Failure.of(ValueError("no"))
    broken = replace(failure, raised=(("LabError", "no", b"..."),))
    assert (type(broken.error()).__name__, str(broken.error())) == ("LabError", "no")
