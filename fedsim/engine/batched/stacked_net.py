"""Nets of one architecture, one of each of many clients, that are computed at once.

The parameters are a list of stacked tensors, in the architecture's order: one client comes after the other
along the first dimension. m: clients, b: batch, N: outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batched.feed import OwnRows
from fedsim.params import Array, Tree


class StackedNet(ABC):
    """How the nets of an architecture are computed at once, each with the bits of one client's.

    Attributes:
        names: Of the parameters.
        num_params: Scalars of the parameters of one client.
        num_values: Scalars that one sample has, and leaves behind in the layers for the backward pass.
        tile_bytes: What nets that are computed at once may take, with all that belongs to them.
        fewest: From so many clients on it pays to train them at once.
        fewest_predicting: From so many clients on it pays to predict or evaluate at once.
        least_share: Of the steps of clients, the share that so many have to take at once for that.
    """

    names: tuple[str, ...]
    num_params: int
    num_values: int
    tile_bytes: int
    fewest: int
    fewest_predicting: int
    least_share: float

    def are_turned(self, batch_size: int) -> list[bool]:
        """Say of each parameter whether it is laid out turned, if batches are of this size."""
        return [False] * len(self.names)

    def can_pad(self, params: Sequence[Tensor], num_clients: int, size: int, padded: int) -> bool:
        """Say whether to pad the batches of some clients from one size to another.

        Args:
            params: Stacked parameters, as they are laid out.
            num_clients: m.
            size: Samples in a batch.
            padded: Rows after padding.
        """
        return False

    @abstractmethod
    def live(
        self,
        params: Sequence[Tensor],
        *,
        is_trained: bool = False,
        is_followed: bool = False,
    ) -> Nets:
        """Return the nets of m clients, as losses see them.

        Args:
            params: Stacked parameters ``[m, ...]``; never written into.
            is_trained: Whether the nets are in training mode and gradients are wanted.
            is_followed: Whether autograd is to follow what becomes of the logits.
        """


class Nets(ABC):
    """A net of each of many clients: the live model of losses that serve many.

    Args:
        names: Of the parameters.
        params: Stacked parameters.
        is_followed: Whether autograd is to follow what becomes of the logits.

    Attributes:
        logits: Of each call, ``[m, b, N]``.
    """

    def __init__(self, names: Sequence[str], params: Sequence[Tensor], *, is_followed: bool) -> None:
        self.logits: list[Tensor] = []
        self._names = names
        self._params = params
        self._is_followed = is_followed

    @property
    def params(self) -> Mapping[str, Tensor]:
        """Parameters by name, each ``[m, ...]``."""
        return dict(zip(self._names, self._params, strict=True))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits of samples ``[m, b, ...]``.

        Raises:
            ValueError: The samples are what a trained model gives, whose gradients would end here.
        """
        if x.requires_grad:
            raise ValueError("a loss that serves many passes one trained model's outputs to another model")
        logits = self._outputs(x).detach()
        if self._is_followed:
            logits.requires_grad_()
        self.logits.append(logits)
        return logits

    public = __call__  # these nets have no buffers

    @abstractmethod
    def _outputs(self, x: Tensor) -> Tensor:
        """Return the logits, and remember what the backward pass needs."""

    @abstractmethod
    def backward(self, slopes: Sequence[Tensor | None], out: list[Tensor], own_rows: OwnRows) -> None:
        """Compute the gradients of a loss.

        Args:
            slopes: The loss's gradient with respect to the logits of each call; None where it has none, zero
                in rows of padding.
            out: Takes the gradients; laid out like the parameters.
            own_rows: Which rows are not padding; empty where none is.
        """


def stack(trees: Sequence[Tree], names: Sequence[str], turned: Sequence[bool]) -> list[Tensor]:
    """Return the clients' arrays ``[m, ...]``, not to be written into.

    Args:
        trees: Arrays of each client; they take one client's memory where all are one tree.
        names: Of the arrays.
        turned: Which are laid out turned.
    """
    first, num_clients = trees[0], len(trees)
    is_one = all(tree is first for tree in trees)
    stacked = []
    for name, is_turned in zip(names, turned, strict=True):
        # A copy in any case: torch takes no read-only array.
        arrays = first[name][None].copy() if is_one else np.stack([tree[name] for tree in trees])
        tensor = _laid_out(torch.from_numpy(arrays), is_turned)
        stacked.append(tensor.expand(num_clients, *tensor.shape[1:]) if is_one else tensor)
    return stacked


def own(stacked: Sequence[Tensor], turned: Sequence[bool]) -> list[Tensor]:
    """Return the clients' parameters, each with memory of its own."""
    return [_laid_out(tensor, is_turned) for tensor, is_turned in zip(stacked, turned, strict=True)]


def _laid_out(tensor: Tensor, is_turned: bool) -> Tensor:
    return tensor.mT.contiguous().mT if is_turned else tensor.contiguous()


def unstacked_rows(params: Sequence[Tensor]) -> Array:
    """Return the parameters of each client in a row, ``[m, size]``."""
    arrays = [tensor.numpy() for tensor in params]
    rows = np.empty((len(arrays[0]), sum(array[0].size for array in arrays)), np.float32)
    start = 0
    for array in arrays:
        end = start + array[0].size
        rows[:, start:end].reshape(array.shape)[:] = array
        start = end
    return rows
