"""Rules of aggregation: hand-computed cases, laws, and the library byzfl on the same arrays."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.algorithms.aggregation.base import RobustRule
from fedsim.params import Array, Tree
from fedsim.plugins import available
from fedsim.rng import Key
from fedsim.torchvision_compat import torchvision_module
from fedsim.wire import ModelUpdate

RULES = [found.name for found in available("fedsim.algorithms.aggregation") if found.name != "mean"]
SIZE = 5


def rule(name: str, **params: Any) -> RobustRule[Any]:
    plugins = {found.name: found.plugin for found in available("fedsim.algorithms.aggregation")}
    made = plugins[name](plugins[name].params()(**params))
    assert isinstance(made, RobustRule)
    return made


def update(values: Any, num_batches: int = 1, mean: float = 0.0) -> ModelUpdate:
    row = np.asarray(values, np.float64)
    params = {"w": row[:2].reshape(1, -1), "b": row[2:]}
    return ModelUpdate("net", params, {"mean": np.array([mean]), "count": np.array(num_batches)}, 10)


def row_of(tree: Tree) -> list[float]:
    return [float(value) for array in tree.values() for value in array.reshape(-1)]


class Log(list[tuple[str, dict[str, Any]]]):
    def __call__(self, event: str, **values: Any) -> None:
        self.append((event, values))


def combined(made: RobustRule[Any], rows: Any, start: Any = None) -> list[float]:
    log = Log()
    origin = None if start is None else update(start).params
    one = made.combined([update(row) for row in rows], origin, log)
    assert log == []
    return row_of(one.params)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("median", {}, [2, 2.5]),
        ("trimmed_mean", {"f": 1}, [2, 6.5 / 3]),
        ("trimmed_mean", {"f": 2}, [2, 2.5]),
        # Squared distances to the three nearest others: 26.5, 10.5, 9.5, 21.5 and more than 30,000.
        ("krum", {"f": 1}, [2, 2.5]),
        ("multi_krum", {"f": 1}, [1.5, 2.5]),
    ],
)
def test_hand_computed_cases(name: str, params: dict[str, Any], expected: list[float]) -> None:
    rows = [[0, 1], [1, 3], [2, 2.5], [3, 3.5], [100, -100]]
    assert combined(rule(name, **params), rows) == pytest.approx(expected)


def test_changes_longer_than_the_bound_are_made_as_long_as_it() -> None:
    # Changes from (1, 1) of the norms 5, 0.5, 0 and 2: the first and the last are clipped to 1.
    rows = [[4, 5], [1.3, 1.4], [1, 1], [1, -1]]
    expected = [1 + (0.6 + 0.3) / 4, 1 + (0.8 + 0.4 - 1) / 4]
    assert combined(rule("norm_clipping", c=1.0), rows, start=[1, 1]) == pytest.approx(expected)


def test_one_step_of_the_geometric_median_weighs_by_the_inverse_of_the_distance_from_the_start() -> None:
    made = rule("geometric_median", steps=1, nu=0.5)
    # Distances 1, 3 and 0, which counts as 0.5: shares 1, 1/3 and 2 of 10/3.
    assert combined(made, [[1, 0], [0, 3], [0, 0]], start=[0, 0]) == pytest.approx([0.3, 0.3])


def test_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() -> None:
    assert combined(rule("median"), [[1, 5], [2, 5], [4, 5], [9, 5]]) == [3, 5]


@pytest.mark.parametrize("name", RULES)
def test_a_single_reply_is_taken_as_it_is(name: str) -> None:
    params = {"f": 0} if "f" in rule(name).params().model_fields else {}
    assert combined(rule(name, **params), [[0.25, -0.5, 1.0]]) == pytest.approx([0.25, -0.5, 1.0])


def test_too_few_replies_for_f_are_told_and_taken_with_a_smaller_f() -> None:
    log = Log()
    one = rule("trimmed_mean", f=3).combined([update([value]) for value in (1, 2, 9)], None, log)
    assert row_of(one.params) == [2]
    problem = "f = 3 attackers are not fewer than half of 3 replies"
    assert log == [("too few replies", {"aggregation": "trimmed_mean", "problem": problem})]


@pytest.mark.parametrize(("name", "mean"), [("median", 1.0), ("trimmed_mean", 4 / 3), ("krum", 20.8)])
def test_running_statistics_are_combined_too_and_counters_are_the_largest(name: str, mean: float) -> None:
    counts_and_means = ((3, 0.0), (9, 1.0), (4, 1.0), (2, 2.0), (1, 100.0))
    updates = [update([0], count, value) for count, value in counts_and_means]
    one = rule(name).combined(updates, None, Log())
    assert one.buffers["mean"].tolist() == pytest.approx([mean])
    assert one.buffers["count"].tolist() == 9
    assert (one.architecture, one.num_samples) == ("net", 10)


ROWS = st.integers(3, 9).flatmap(
    lambda m: st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=SIZE, max_size=SIZE), min_size=m, max_size=m
    )
)


@given(st.sampled_from(RULES), ROWS, st.randoms())
def test_the_order_of_replies_does_not_matter(name: str, rows: Sequence[Any], random: Any) -> None:
    if len({tuple(row) for row in rows}) < len(rows) or name in ("krum", "multi_krum"):
        return  # of equal scores the first reply is taken
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert combined(rule(name), rows) == pytest.approx(combined(rule(name), shuffled), abs=1e-9)


@given(st.sampled_from(["median", "trimmed_mean", "krum", "multi_krum"]), ROWS, st.floats(-1e6, 1e6))
def test_a_minority_that_sends_anything_cannot_leave_the_range_of_the_others(
    name: str, rows: list[list[float]], value: float
) -> None:
    honest = np.array(rows)
    attacked = [*rows, [value] * SIZE]
    result = np.array(combined(rule(name), attacked))
    if name in ("krum", "multi_krum") and np.abs(value) <= 1000:
        return  # near to the others it may be chosen
    assert (result >= honest.min(axis=0) - 1e-9).all()
    assert (result <= honest.max(axis=0) + 1e-9).all()


@pytest.fixture(scope="module")
def byzfl() -> Any:
    torchvision_module("datasets")  # which it imports
    return importlib.import_module("byzfl")


@pytest.mark.parametrize("m", [5, 8, 21])
@pytest.mark.parametrize("f", [0, 1, 2])
def test_rules_equal_those_of_byzfl(f: int, m: int, byzfl: Any) -> None:
    rng = Key.root(0).child("rows", m, f).numpy()
    rows: Array = rng.normal(size=(m, 60)) * rng.lognormal(size=(m, 1))
    its: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
        "median": ({}, byzfl.Median()),
        "trimmed_mean": ({"f": f}, byzfl.TrMean(f)),
        "krum": ({"f": f}, byzfl.Krum(f)),
        "multi_krum": ({"f": f}, byzfl.MultiKrum(f)),
        "geometric_median": ({"nu": 0.1, "steps": 3}, byzfl.GeometricMedian(nu=0.1, T=3)),
        "norm_clipping": ({"c": 2.5}, lambda vectors: byzfl.Clipping(c=2.5)(vectors).mean(axis=0)),
    }
    assert sorted(its) == sorted(RULES)
    for name, (params, theirs) in its.items():
        np.testing.assert_allclose(combined(rule(name, **params), rows), theirs(rows.copy()), 1e-6, 1e-12)
