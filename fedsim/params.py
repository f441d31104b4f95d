"""Parameter trees: named arrays, their means and digests, and what of them can be computed with.

A tree is a flat mapping from a parameter's name to a NumPy array, in the order of the architecture. Trees
are values: nobody writes into one after it was made, and :func:`freeze` lets NumPy enforce that. Sums run in
the order of their arguments and accumulate in float64, so no result depends on the order of arrival.

A :class:`PendingTree` is a tree that nobody has looked at yet. What nobody looks at is never computed, and
what is computed late can be computed together with others like it. A :class:`RowTree` lies in one piece of
memory.

A :class:`Model` is an architecture's label with trainable parameters and buffers. The two are kept apart,
because arithmetic and the count of "parameters communicated" concern only the parameters (specification 2.3
and 3.1).
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import accumulate
from math import isfinite, prod
from typing import Any, NamedTuple, Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from fedsim.frozen import made_fast

Array = NDArray[Any]
Tree = Mapping[str, Array]


class ArrayForm(NamedTuple):
    """What is known of an array before its values are."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Scalars."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return prod(self.shape) * self.dtype.itemsize


class Form(dict[str, ArrayForm]):
    """Names, dtypes and shapes of a tree, in its order; equal forms that :meth:`of` makes are one object."""

    size: int

    # Equal forms are mostly one object, so comparing and hashing them costs nothing.
    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]

    @staticmethod
    def of(tree: Mapping[str, Array | ArrayForm]) -> Form:
        """Return the form of a tree, or of what gives dtypes and shapes."""
        return _form(tuple([(name, array.dtype, array.shape) for name, array in tree.items()]))

    def is_like(self, other: Form) -> bool:
        """Say whether another form has the same names, dtypes and shapes in the same order."""
        return self is other or list(self.items()) == list(other.items())


def forms_of(tree: Tree) -> Mapping[str, ArrayForm | Array]:
    """Return what gives the dtype and the shape of each array, without computing what is pending."""
    forms: Mapping[str, ArrayForm | Array] = getattr(tree, "form", tree)
    return forms


def form_of(tree: Tree) -> Form:
    """Return the form of a tree, without computing what is pending."""
    forms = forms_of(tree)
    return forms if isinstance(forms, Form) else Form.of(forms)


@lru_cache(maxsize=256)
def _form(listed: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]) -> Form:
    form = Form((name, ArrayForm(dtype, shape)) for name, dtype, shape in listed)
    form.size = sum(array.size for array in form.values())
    return form


class _FormedTree(Mapping[str, Array]):
    """A tree whose form is known before its arrays are there."""

    __slots__ = ("form",)

    form: Form

    @abstractmethod
    def computed(self) -> Tree:
        """Return the arrays by name, after computing them if need be."""

    def __getitem__(self, name: str) -> Array:
        return self.computed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.form)

    def __len__(self) -> int:
        return len(self.form)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return dict, (dict(self.computed()),)  # a copy has values, and no part of the run that computes them

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self.form.keys()

    def values(self) -> ValuesView[Array]:
        """Return the arrays."""
        return self.computed().values()

    def items(self) -> ItemsView[str, Array]:
        """Return names and arrays."""
        return self.computed().items()


@final  # so that ``type(tree) is PendingTree`` will do, where isinstance takes ten times as long
class PendingTree(_FormedTree):
    """A tree that is computed when one of its arrays is first looked at."""

    __slots__ = ("_compute", "_tree")

    def __init__(self, form: Form, compute: Callable[[], Tree]) -> None:
        self.form = form
        self._tree: Tree = {}
        self._compute: Callable[[], Tree] | None = compute

    @property
    def is_pending(self) -> bool:
        """Whether it has not been computed yet."""
        return self._compute is not None

    def computed(self) -> Tree:
        """Return the tree, after computing it if need be."""
        if self._compute is not None:
            self._tree, self._compute = self._compute(), None
        return self._tree


@final
class RowTree(_FormedTree):
    """A tree of one dtype whose arrays are parts of one row.

    What is done to each scalar alike takes one operation then, instead of one for each array. Mostly nothing
    else is done, so the arrays are made when one is first looked at.

    Args:
        row: All scalars, ``[size]``; nobody writes into it any more.

    Attributes:
        row: All scalars, ``[size]``, read-only.
    """

    __slots__ = ("_arrays", "is_in_range", "row")

    def __init__(self, row: Array, form: Form, *, is_in_range: bool = False) -> None:
        row.flags.writeable = False
        self.row = row
        self.form = form
        self.is_in_range = is_in_range
        self._arrays: Tree | None = None

    def computed(self) -> Tree:
        """Return the arrays by name."""
        if self._arrays is None:
            ends = accumulate(array.size for array in self.form.values())
            self._arrays = {
                name: self.row[end - array.size : end].reshape(array.shape)
                for (name, array), end in zip(self.form.items(), ends, strict=True)
            }
        return self._arrays


_COME_FROZEN = (PendingTree, RowTree)


def selected(tree: Tree, names: Sequence[str]) -> Tree:
    """Return the arrays of these names; pending as long as the tree is."""
    if type(tree) is PendingTree and tree.is_pending and names:
        form = _form(tuple([(name, *tree.form[name]) for name in names]))
        return PendingTree(form, lambda: {name: tree[name] for name in names})
    return {name: tree[name] for name in names}


def freeze(tree: Tree) -> Tree:
    """Mark every array read-only, in place, and return the tree."""
    if type(tree) in _COME_FROZEN:
        return tree
    for array in tree.values():
        if isinstance(array, np.ndarray):  # arithmetic on arrays without dimensions gives scalars, which are
            array.flags.writeable = False
    return tree


def unwarned() -> np.errstate:
    """Return a context without NumPy's warnings of overflow, for callers that check results themselves.

    Tasks that start within the context inherit it; other threads do not.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def count(tree: Tree) -> int:
    """Return the number of scalars."""
    if type(tree) is PendingTree:
        return tree.form.size
    return sum(array.size for array in tree.values())


BLOCK = 32768
"""So many scalars of a mean are summed at once: their sums, in float64, stay in the processor's cache."""

SPREAD_FROM = 2**21
"""Sums of so many terms are spread over threads."""

SMALL = 256
"""Up to so many scalars, arrays are stacked for that, since an operation costs more than its numbers."""

NON_FINITE = "NaN or an infinity"
"""What an array with such values is said to hold."""

OVERFLOWING = "whose products overflow"
"""What is said of values that are too large."""


Work = Callable[[Sequence[int]], object]
"""Does something for each of some blocks, whose results do not depend on each other."""

_SPREAD: ContextVar[Callable[[Work, Sequence[int]], object]] = ContextVar("spread")


@contextmanager
def spreading(spread: Callable[[Work, Sequence[int]], object]) -> Iterator[None]:
    """Do sums over large trees by ``spread``, which may give blocks to several threads: same bits."""
    token = _SPREAD.set(spread)
    try:
        yield
    finally:
        _SPREAD.reset(token)


def out_of_range(array: Array) -> str | None:
    """Return a description of values that break computations, or None: NaN, infinities, too large numbers.

    A number is too large where its square overflows: the mean of one model of 3e38 and many honest ones is
    finite, but training it gives only NaN. In half precision squares overflow from 256 on; it is used for
    storage, so there every finite number is accepted.
    """
    dtype = array.dtype
    if dtype.kind != "f" or not array.size:
        return None
    # One fast pass: if the sum of squares is finite, so is each square. Unlike np.dot, np.vdot never warns of
    # what overflows, and entering a context without warnings would take as long as a small array does.
    if dtype.itemsize >= 4 and array.flags.c_contiguous and isfinite(np.vdot(array, array)):
        return None
    most = _most(dtype)
    # Two passes without a copy. Where there is a NaN, both results are NaN, which compares as False.
    if array.max() <= most and array.min() >= -most:
        return None
    return f"values beyond {most:.2g}, {OVERFLOWING}" if np.isfinite(array).all() else NON_FINITE


@cache
def _most(dtype: np.dtype[Any]) -> float:
    largest = np.float64(np.finfo(dtype).max)
    return float(largest if dtype.itemsize < 4 else np.sqrt(largest))


def all_finite(tree: Tree) -> bool:
    """Say whether no array of a tree is :func:`out_of_range`."""
    if type(tree) is RowTree and (tree.is_in_range or out_of_range(tree.row) is None):
        return True
    return all(out_of_range(array) is None for array in tree.values())


def digest(*trees: Tree) -> bytes:
    """Return 16 bytes that identify names, dtypes, shapes and values of the trees, in order."""
    state = hashlib.blake2b(digest_size=16)
    for tree in trees:
        for name, array in tree.items():
            state.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
            state.update(np.ascontiguousarray(array).data)
        state.update(b"/")
    return state.digest()


def weighted_mean(trees: Sequence[Tree], weights: Sequence[float]) -> Tree:
    """Return ``sum_i weights[i] * trees[i]`` (specification 3.1).

    Floating arrays are accumulated in float64 in the order given, then cast back to the first tree's dtype.
    One tree comes back bit for bit, and so do equal trees of float32 or less. Integer arrays, which are
    counters such as ``num_batches_tracked``, take the largest value; boolean ones that of the heaviest tree,
    the first on ties.
    """
    if not trees or len(trees) != len(weights):
        raise ValueError(
            f"{len(trees)} trees and {len(weights)} weights: give one weight for each, at least one"
        )
    # Written so that NaN fails.
    if not (min(weights) >= 0 and abs(sum(weights) - 1) <= 1e-9):
        raise ValueError(
            f"weights of a mean are non-negative and sum to one: the smallest is {min(weights)!r}, "
            f"the sum {sum(weights)!r}"
        )
    trees = [tree.computed() if type(tree) is PendingTree else tree for tree in trees]
    first = trees[0]
    if type(first) is RowTree and all(type(tree) is RowTree and tree.form is first.form for tree in trees):
        return RowTree(_summed([cast(RowTree, tree).row for tree in trees], weights), first.form)
    for tree in {id(tree): tree for tree in trees}.values():
        if tree.keys() != first.keys():
            raise ValueError(f"trees of one mean have the same names: {list(tree)} and {list(first)} differ")
        for name, array in first.items():
            # NumPy would broadcast another shape and say nothing.
            if tree[name].shape != array.shape:
                raise ValueError(f"{name!r} has the shapes {tree[name].shape} and {array.shape} in one mean")
    heaviest = trees[max(range(len(trees)), key=lambda i: (weights[i], -i))]
    mean = {}
    for name, array in first.items():
        if array.dtype.kind == "f":
            mean[name] = _summed([tree[name] for tree in trees], weights)
        elif array.dtype.kind in "iu":
            mean[name] = np.asarray(np.maximum.reduce([tree[name] for tree in trees]))
        else:
            mean[name] = heaviest[name]
    return freeze(mean)


def _summed(arrays: Sequence[Array], weights: Sequence[float]) -> Array:
    """Return the weighted sum of floating arrays of one shape, one after the other."""
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if arrays[0].size <= SMALL:
        return _sum_of_small(arrays, weights).astype(dtype).reshape(shape)
    result = np.empty(shape, dtype)
    flat, (first, *others) = result.reshape(-1), [array.reshape(-1) for array in arrays]

    def sum_blocks(starts: Sequence[int]) -> None:
        memory = np.empty(min(BLOCK, flat.size))
        for start in starts:
            block = slice(start, start + BLOCK)
            # From the first term, not from zero, which would lose the sign of a -0.0.
            total = np.multiply(first[block], weights[0], dtype=np.float64)
            term = memory[: len(total)]
            for array, weight in zip(others, weights[1:], strict=True):
                term[:] = array[block]
                term *= weight
                total += term
            flat[block] = total

    starts, spread = range(0, flat.size, BLOCK), _SPREAD.get(None)
    if spread is None or flat.size * len(arrays) < SPREAD_FROM:
        sum_blocks(starts)
    else:
        spread(sum_blocks, starts)
    return result


def _sum_of_small(arrays: Sequence[Array], weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the weighted sum of small arrays, flat: several of them in each operation."""
    size = arrays[0].size
    factors = np.array(weights)[:, None]
    together = min(len(arrays), max(1, BLOCK // max(1, size)))
    # First the sum so far, if any, then the next terms.
    sums: NDArray[np.float64] = np.empty((1 + together, size))
    for start in range(0, len(arrays), together):
        block = arrays[start : start + together]
        terms = sums[1 : 1 + len(block)]
        np.concatenate(block, axis=None, out=terms.reshape(-1))
        terms *= factors[start : start + together]
        rows = sums[: 1 + len(block)] if start else terms
        # Unlike a sum, which NumPy may add up in pairs, this adds one row after the other.
        np.add.accumulate(rows, axis=0, out=rows)
        sums[0] = terms[-1]
    total: NDArray[np.float64] = sums[0]
    return total


@made_fast
@dataclass(frozen=True, slots=True)
class Model:
    """An architecture's label with one set of values, which are read-only."""

    architecture: str
    params: Tree
    buffers: Tree = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tree in (self.params, self.buffers):
            if type(tree) not in _COME_FROZEN and tree:
                freeze(tree)

    def compute(self) -> None:
        """Compute what is pending."""
        if type(self.params) is PendingTree:
            self.params.computed()
        if type(self.buffers) is PendingTree:
            self.buffers.computed()

    def digest(self) -> bytes:
        """Return 16 bytes that identify the architecture's label and every value."""
        head = hashlib.blake2b(self.architecture.encode(), digest_size=16)
        head.update(digest(self.params, self.buffers))
        return head.digest()

    def is_finite(self) -> bool:
        """Say whether no array is :func:`out_of_range`."""
        return all_finite(self.params) and all_finite(self.buffers)


class ModelValues(Protocol):
    """A model, or a message that carries one."""

    @property
    def architecture(self) -> str:
        """The label of the architecture."""

    @property
    def params(self) -> Tree:
        """Trainable parameters."""

    @property
    def buffers(self) -> Tree:
        """Buffers."""


def mean_model(models: Sequence[ModelValues], weights: Sequence[float]) -> Model:
    """Return the weighted mean of models of one architecture, buffers included (specification 3.1)."""
    labels = sorted({model.architecture for model in models})
    if len(labels) > 1:
        raise ValueError(f"a mean needs one architecture, these are {', '.join(labels)}")
    return Model(
        models[0].architecture,
        weighted_mean([model.params for model in models], weights),
        weighted_mean([model.buffers for model in models], weights),
    )
