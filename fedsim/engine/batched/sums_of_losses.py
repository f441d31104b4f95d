"""The losses of many clients at once, with the bits of one client's."""

from __future__ import annotations

import numpy as np

from fedsim.params import Array


def sums_of_losses(log_p: Array) -> Array:
    """Return the sum of ``-log_p`` of each row ``[k, b]``, added up in the order of torch's ``nll_loss``.

    That is a cascade: with each 16th term a partial sum moves one level up, and the first term to the top.
    """
    batch_size = log_p.shape[1]
    num_levels = 1
    while 16**num_levels < batch_size:
        num_levels += 1
    levels = np.zeros((num_levels + 1, len(log_p)), np.float32)
    levels[-1] -= log_p[:, 0]
    for number in range(1, batch_size):
        levels[0] -= log_p[:, number]
        for level in range(num_levels - 1):
            if number >> (4 * level) & 15:
                break
            levels[level + 1] += levels[level]
            levels[level] = 0
    total: Array = levels[0]
    for partial in levels[1:]:
        total += partial
    return total


def means_of_losses(log_p: Array) -> Array:
    """Return the mean of ``-log_p`` of each row ``[k, b]``, as :func:`sums_of_losses` adds it up."""
    mean: Array = sums_of_losses(log_p) / np.float32(log_p.shape[1])
    return mean
