from collections.abc import Sequence
from copy import deepcopy
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsim import params
from fedsim.params import Form, Model, RowTree, Tree, mean_model, spreading, weighted_mean

FLOATS = st.sampled_from([np.float16, np.float32])
SMALL = st.floats(-9, 9, width=32)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def _arrays(dtype: Any) -> st.SearchStrategy[Any]:
    return hnp.arrays(dtype, SHAPES, elements={"allow_nan": False, "allow_infinity": False})


def _tree(**values: Any) -> Tree:
    return {name: np.asarray(value) for name, value in values.items()}


def _f32(*values: float) -> Any:
    return np.array(values, np.float32)


def _same(left: Tree, right: Tree) -> bool:
    """Say whether names, their order, dtypes, shapes and bits agree."""
    return list(left) == list(right) and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


# The mean


def test_the_mean_by_hand() -> None:
    trees = [
        _tree(w=_f32(1, 2), steps=np.int64(3), on=np.array([True])),
        _tree(w=_f32(3, 6), steps=np.int64(9), on=np.array([False])),
    ]
    mean = weighted_mean(trees, [0.25, 0.75])
    assert _same(mean, _tree(w=_f32(2.5, 5), steps=np.int64(9), on=np.array([False])))


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 600)), elements=SMALL),
    st.integers(0, 600),
)
def test_trees_in_rows_have_the_mean_of_other_trees(rows: Any, cut: int) -> None:
    size = rows.shape[1]
    cut = min(cut, size)
    form = Form.of({"w": rows[0, :cut].reshape(1, cut), "b": rows[0, cut:]})
    trees = [RowTree(row.copy(), form) for row in rows]
    weights = [1 / len(rows)] * len(rows)
    mean = weighted_mean(trees, weights)
    assert type(mean) is RowTree
    assert _same(mean, weighted_mean([dict(tree) for tree in trees], weights))


def test_a_tree_in_a_row_is_read_only_and_its_copies_are_plain() -> None:
    form = Form.of({"w": np.zeros((2, 2), np.float32), "b": np.zeros((), np.float32)})
    tree = RowTree(np.arange(5, dtype=np.float32), form)
    assert _same(tree, {"w": np.array([[0, 1], [2, 3]], np.float32), "b": np.array(4, np.float32)})
    assert not any(array.flags.writeable for array in (tree.row, *tree.values()))
    copied: Any = deepcopy(tree)
    assert type(copied) is dict
    assert _same(copied, tree)


@given(_arrays(np.float64), _arrays(np.float32))
def test_one_tree_comes_back_bit_for_bit(wide: Any, narrow: Any) -> None:
    tree = _tree(wide=wide, narrow=narrow, counter=np.int32(4), flag=np.array([True, False]))
    assert _same(weighted_mean([tree], [1.0]), tree)


@given(FLOATS.flatmap(_arrays), st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_equal_trees_come_back_bit_for_bit(array: Any, amounts: list[float]) -> None:
    weights = [amount / sum(amounts) for amount in amounts]
    mean = weighted_mean([_tree(w=array.copy()) for _ in weights], weights)
    assert _same(mean, _tree(w=array))


@given(st.data(), FLOATS, SHAPES, st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(sum))
def test_a_mean_in_blocks_is_the_plain_sum_bit_for_bit(
    data: st.DataObject, dtype: Any, shape: Any, amounts: list[float]
) -> None:
    weights = [amount / sum(amounts) for amount in amounts]
    # Of several NaNs it is not said which one comes out.
    arrays = [data.draw(hnp.arrays(dtype, shape, elements={"allow_nan": False})) for _ in weights]
    with params.unwarned():
        total = arrays[0].astype(np.float64) * weights[0]
        for array, weight in zip(arrays[1:], weights[1:], strict=True):
            total = total + array.astype(np.float64) * weight
        expected = _tree(w=np.asarray(total).astype(dtype))
        for block, small, least in product((1, 3, params.BLOCK), (0, params.SMALL), (0, params.SPREAD_FROM)):
            with patch.multiple(params, BLOCK=block, SMALL=small, SPREAD_FROM=least), spreading(_backwards):
                assert _same(weighted_mean([_tree(w=array) for array in arrays], weights), expected)


def _backwards(work: params.Work, blocks: Sequence[int]) -> None:
    for block in reversed(blocks):
        work([block])


def test_the_sign_of_zero_is_kept() -> None:
    tree = _tree(w=_f32(-0.0, 0.0), scalar=np.float32(-0.0))
    assert np.signbit(weighted_mean([tree], [1.0])["w"]).tolist() == [True, False]
    assert np.signbit(weighted_mean([tree, tree], [0.5, 0.5])["scalar"])


def test_sums_are_made_in_float64() -> None:
    # In float32 each of the small terms would be lost beside the large one.
    trees = [_tree(w=_f32(2.0**24)), *(_tree(w=_f32(1.0)) for _ in range(64))]
    weights = [1 / 65] * 65
    exact = (2.0**24 + 64) / 65
    mean = weighted_mean(trees, weights)["w"]
    assert mean.dtype == np.float32
    assert mean[0] == np.float32(exact)
    assert np.float32(exact) != np.float32(np.float32(2.0**24) * np.float32(1 / 65))


def test_dtypes_are_those_of_the_first_tree() -> None:
    trees = [_tree(w=np.ones(2, np.float16), n=np.uint8(200)), _tree(w=np.ones(2, np.float64), n=np.uint8(3))]
    mean = weighted_mean(trees, [0.5, 0.5])
    assert (mean["w"].dtype.name, mean["n"].dtype.name, int(mean["n"])) == ("float16", "uint8", 200)


@pytest.mark.parametrize(
    ("weights", "heaviest"), [([0.2, 0.5, 0.3], 1), ([0.4, 0.2, 0.4], 0), ([1 / 3, 1 / 3, 1 / 3], 0)]
)
def test_booleans_are_those_of_the_heaviest_tree_the_first_on_ties(
    weights: list[float], heaviest: int
) -> None:
    trees = [_tree(on=np.arange(3) == number) for number in range(3)]
    assert weighted_mean(trees, weights)["on"].tolist() == (np.arange(3) == heaviest).tolist()


def test_integers_take_the_largest_element_by_element() -> None:
    trees = [_tree(n=np.array([[1, 9]])), _tree(n=np.array([[5, 2]]))]
    assert weighted_mean(trees, [1.0, 0.0])["n"].tolist() == [[5, 9]]


def test_names_keep_the_order_of_the_first_tree() -> None:
    left, right = {"b": _f32(1), "a": _f32(2)}, {"a": _f32(4), "b": _f32(3)}
    mean = weighted_mean([left, right], [0.5, 0.5])
    assert {name: float(value[0]) for name, value in mean.items()} == {"b": 2.0, "a": 3.0}
    assert list(mean) == ["b", "a"]


def test_arguments_are_not_changed_and_not_shared() -> None:
    tree = _tree(w=_f32(1, 2))
    mean = weighted_mean([tree, tree], [0.5, 0.5])
    tree["w"][0] = 7
    assert mean["w"].tolist() == [1, 2]


def test_a_mean_and_a_model_cannot_be_written_into() -> None:
    tree = _tree(w=_f32(1, 2))
    for array in (weighted_mean([tree], [1.0])["w"], Model("m", tree).params["w"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


@pytest.mark.parametrize(
    ("trees", "weights", "message"),
    [
        ([], [], "0 trees and 0 weights: give one weight for each, at least one"),
        ([{}], [0.5, 0.5], "1 trees and 2 weights"),
        ([{}, {}], [1.5, -0.5], r"non-negative and sum to one: the smallest is -0.5"),
        ([{}, {}], [0.5, 0.4], r"sum to one: the smallest is 0.4, the sum 0.9"),
        ([{}, {}], [float("nan"), 1.0], "sum to one"),
        ([{}, {}], [1.0, float("nan")], "sum to one"),
        ([_tree(a=_f32(1)), _tree(b=_f32(1))], [0.5, 0.5], r"same names: \['b'\] and \['a'\] differ"),
        ([_tree(a=_f32(1)), {}], [0.5, 0.5], "same names"),
        ([_tree(a=_f32(1, 2)), _tree(a=_f32(1))], [0.5, 0.5], r"'a' has the shapes \(1,\) and \(2,\)"),
    ],
)
def test_what_is_no_mean_is_refused(trees: Sequence[Tree], weights: Sequence[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weighted_mean(trees, weights)


def test_scalars_are_counted() -> None:
    assert params.count(_tree(a=np.zeros((2, 3)), b=np.float32(1), c=np.zeros(0))) == 7
    assert params.count({}) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_finite(bad: float) -> None:
    good = _tree(w=_f32(1), n=np.array([1]), on=np.array([True]))
    assert params.all_finite(good)
    assert not params.all_finite({**good, "x": _f32(0, bad)})
    assert Model("a", good, good).is_finite()
    assert not Model("a", {"x": _f32(bad)}).is_finite()
    assert not Model("a", good, {"x": _f32(bad)}).is_finite()


def test_frozen_trees_cannot_be_written_into() -> None:
    tree = _tree(w=_f32(1))
    assert params.freeze(tree) is tree
    with pytest.raises(ValueError, match="read-only"):
        tree["w"][0] = 2


# Digests


def test_a_digest_does_not_change_between_versions() -> None:
    tree = _tree(w=_f32(1, 2), n=np.array(3, "<i8"))
    assert params.digest(tree).hex() == "2838fddb7a68dd61f100532c7fca79e5"
    assert Model("mlp", tree).digest().hex() == "3f674a5785eb912ac9ff8f00a0577893"


def test_a_digest_tells_names_dtypes_shapes_and_values_apart() -> None:
    trees = [
        {},
        _tree(w=_f32(0, 0)),
        _tree(v=_f32(0, 0)),
        _tree(w=np.zeros(2)),
        _tree(w=np.zeros((2, 1), np.float32)),
        _tree(w=_f32(0, -0.0)),
        _tree(w=_f32(0, 0), v=_f32(0)),
        _tree(v=_f32(0), w=_f32(0, 0)),
        _tree(w=np.zeros((0, 3), np.float32)),
        _tree(w=np.zeros((3, 0), np.float32)),
        _tree(w=np.float32(0)),
    ]
    digests = {params.digest(tree) for tree in trees}
    assert len(digests) == len(trees)
    first, second = _tree(w=_f32(1)), _tree(w=_f32(2))
    several = [(first, second), (second, first), (first,), ()]
    assert len({params.digest(*some) for some in several}) == 4


def test_a_digest_sees_values_and_not_memory() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2]):
        assert params.digest({"w": view}) == params.digest({"w": array})


def test_a_models_digest_tells_parameters_from_buffers_and_labels() -> None:
    one, two = _tree(w=_f32(1)), _tree(w=_f32(2))
    models = [
        Model(*parts) for parts in (("a", one), ("b", one), ("a", one, two), ("a", two, one), ("a", {}, one))
    ]
    assert len({model.digest() for model in models}) == len(models)
    assert Model("a", dict(one)).digest() == models[0].digest()


# Models


def test_a_mean_model_averages_buffers_too() -> None:
    models = [
        Model("a", _tree(w=_f32(0)), _tree(mean=_f32(1), n=np.int64(1))),
        Model("a", _tree(w=_f32(4)), _tree(mean=_f32(5), n=np.int64(2))),
    ]
    mean = mean_model(models, [0.75, 0.25])
    assert mean.architecture == "a"
    assert _same(mean.params, _tree(w=_f32(1)))
    assert _same(mean.buffers, _tree(mean=_f32(2), n=np.int64(2)))


def test_models_of_several_architectures_have_no_mean() -> None:
    with pytest.raises(ValueError, match="a mean needs one architecture, these are a, b"):
        mean_model([Model("b", {}), Model("a", {}), Model("b", {})], [0.5, 0.25, 0.25])
