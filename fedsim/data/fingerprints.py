"""Fingerprints of federated data sets, by which two processes tell whether they have the same one.

Each part is described by its counts and a digest of its arrays' bytes, which takes about a second per GB. A
data set of counts only is described by its counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from fedsim.data.client_split import SPLITS
from fedsim.data.federated import FederatedData
from fedsim.walk import little_endian, octets

Fingerprint: TypeAlias = Mapping[str, str]
"""A description of each part, by its name: in words, with the digest after ``#``."""


def fingerprint(data: FederatedData) -> Fingerprint:
    """Return the fingerprint of a data set; equal data sets have equal ones, in every process."""
    x, y, task = data.x, data.y, data.task
    shape = "x".join(map(str, task.input_shape)) or "1"
    tokens = f", {task.vocabulary} tokens" if task.vocabulary else ""
    counts = ", ".join(f"{int(data.sizes(split).sum())} {split}" for split in SPLITS)
    holdings = (data.holdings[split] for split in SPLITS)
    held = [array for holding in holdings for array in (holding.offsets, holding.flat) if array is not None]
    where = "there from the start" if data.public_at_clients else "at the server"
    labels = "labelled" if data.public_labelled else "not labelled"
    return {
        "task": f"{task.kind}, {shape} to {task.num_outputs}{tokens} #",
        "samples": f"{len(x)} of {task.dtype} #{_digest(x)}",
        "labels": f"{len(y)} of {task.label_dtype} #{_digest(y)}",
        "who holds what": f"{data.num_clients} clients, {counts} #{_digest(*held)}",
        "public set": f"{len(data.public)} samples, {labels}, {where} #{_digest(data.public)}",
        "global test set": f"{len(data.global_test)} samples #{_digest(data.global_test)}",
    }


def differences(here: Fingerprint, there: Fingerprint) -> list[str]:
    """Return one phrase for each part in which two fingerprints differ; none where they agree."""
    phrases = []
    for name in {**here, **there}:
        mine, its = here.get(name, ""), there.get(name, "")
        if mine == its:
            continue
        words, others = (text.rpartition(" #")[0] or "unknown" for text in (mine, its))
        how = f"{words} both, with other values" if words == others else f"{words} here, {others} there"
        phrases.append(f"{name} ({how})")
    return phrases


def _digest(*arrays: np.ndarray[Any, Any]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        little = little_endian(array)
        state.update(f"{little.dtype.str}{little.shape};".encode())
        state.update(octets(little))
    return state.hexdigest()
