"""Whether a model is of the architecture that belongs in its place (specification 3.5, E12)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsim.params import Array, ArrayForm, Model, PendingTree, Tree


def unlike(model: Model, wanted: Model) -> str | None:
    """Return how a model differs from another in label, names, shapes or dtypes; None if it does not."""
    label = wanted.architecture
    if model.architecture != label:
        return f"architecture {model.architecture!r}, not {label!r}"
    if (fault := unlike_tree(model.params, wanted.params, label)) is not None:
        return fault
    return unlike_tree(model.buffers, wanted.buffers, label) if model.buffers or wanted.buffers else None


def unlike_tree(tree: Tree, wanted: Tree, label: str) -> str | None:
    """Return how a tree differs from another in names, shapes or dtypes; None if it does not."""
    ours, theirs = _form(wanted), _form(tree)
    if ours.keys() != theirs.keys():
        return f"other names than architecture {label!r} has"
    for name, array in ours.items():
        its = theirs[name]
        if array.shape != its.shape or array.dtype != its.dtype:
            return f"{name}: {its.dtype}{its.shape}, not {array.dtype}{array.shape}"
    return None


def _form(tree: Tree) -> Mapping[str, Array | ArrayForm]:
    return tree.form if type(tree) is PendingTree else tree


def same(left: Model, right: Model) -> bool:
    """Whether two models have one label and equal values."""
    trees = (left.params, right.params), (left.buffers, right.buffers)
    return unlike(left, right) is None and all(
        np.array_equal(array, theirs[name]) for ours, theirs in trees for name, array in ours.items()
    )
