"""Mixtures of models, one for each client; pure, for ``server.call``. r: mixtures, m: models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.params import Array, Model, mean_model


def mixtures(models: Sequence[Model], weights: Array) -> list[Model]:
    """Return a mean of the models for each row of weights ``[r, m]``, buffers included."""
    return [
        mean_model([models[one] for one in np.flatnonzero(row).tolist()], row[row != 0].tolist())
        for row in weights
    ]
