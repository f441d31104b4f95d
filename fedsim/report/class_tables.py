"""The tables of classes: what clients hold, and under ``evaluation.per_class`` how well it is learned.

:mod:`fedsim.report.run_columns` says what their columns mean. Shares are null where they would divide by 0.
Samples of the global test set count once for each distinct global model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from fedsim.data import FederatedData
from fedsim.engine.confusion import Confusion
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.runtime.records.result import RoundRow


def client_classes(data: FederatedData) -> Columns | None:
    """Return how many training samples of which class each client has, where it has any, as columns.

    None where there are no classes: in a regression, of counts only, and where labels are the next tokens of
    texts.
    """
    task, flat = data.task, data.holdings["train"].flat
    if flat is None or task.kind != "classification" or task.vocabulary == task.num_outputs:
        return None
    holder = np.repeat(np.arange(data.num_clients), data.sizes("train"))
    cells, num_samples = np.unique(holder * task.num_outputs + data.y[flat], return_counts=True)
    client, number = np.divmod(cells, task.num_outputs)
    return {
        "client": client,
        "class": number,
        "class_name": _named(number, data.class_names),
        "num_samples": num_samples,
    }


def classes(rows: Sequence[RoundRow], names: Sequence[str] | None) -> Columns:
    """Return the counts and figures of each class at each evaluation as columns."""
    evaluated = list(_evaluated(rows))
    there = [np.union1d(its.true, its.predicted) for _, _, its in evaluated]
    every = _joined(there, np.int64)

    def joined(attribute: str, kind: type) -> Array:
        figures = [getattr(its, attribute) for _, _, its in evaluated]
        return _joined([some[own] for some, own in zip(figures, there, strict=True)], kind)

    return {
        **_where(evaluated, list(map(len, there))),
        "class": every,
        "class_name": _named(every, names),
        **{name: joined(name, np.int64) for name in ("num_samples", "num_predicted", "num_correct")},
        **{name: joined(name, float) for name in ("recall", "precision", "f1")},
    }


def confusion(rows: Sequence[RoundRow]) -> Columns:
    """Return the samples of each true and predicted class at each evaluation as columns."""
    evaluated = list(_evaluated(rows))
    return {
        **_where(evaluated, [len(its.cells) for _, _, its in evaluated]),
        "true_class": _joined([its.true for _, _, its in evaluated], np.int64),
        "predicted_class": _joined([its.predicted for _, _, its in evaluated], np.int64),
        "num_samples": _joined([its.counts for _, _, its in evaluated], np.int64),
    }


_Counted: TypeAlias = tuple[int, str, Confusion]
"""Round, test set, and what was counted."""


def _evaluated(rows: Sequence[RoundRow]) -> Iterator[_Counted]:
    for row in rows:
        if row.accuracy is not None:
            for test_set, its in row.accuracy.confusions.items():
                yield row.round, test_set, its


def _where(evaluated: Sequence[_Counted], times: Sequence[int]) -> Columns:
    """Return the first columns: round and test set, each so many times."""
    return {
        "round": np.repeat(np.array([number for number, _, _ in evaluated], np.int32), times),
        "test_set": np.repeat(np.array([test_set for _, test_set, _ in evaluated], object), times),
    }


def _joined(arrays: Sequence[Array], kind: type) -> Array:
    return np.concatenate([np.empty(0, kind), *arrays]).astype(kind, copy=False)


def _named(numbers: Array, names: Sequence[str] | None) -> Array:
    """Return what classes are called, given their numbers."""
    return np.array([names[number] if names else str(number) for number in numbers.tolist()], object)
