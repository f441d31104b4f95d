"""One model of each client of a tile while it is trained, or teaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batched.feed import OwnRows
from fedsim.engine.batched.stacked_net import Nets, StackedNet, own, stack, unstacked_rows
from fedsim.engine.optimisers import Optimiser, OptimiserState
from fedsim.engine.steps import Correction
from fedsim.params import Form, RowTree, Tree


class TiledNets:
    """Nets of m clients, and of those that are trained the gradients and the optimiser's state.

    Args:
        net: How they are computed.
        trees: Parameters of each client.
        batch_size: Size of the largest batch.
        optimiser: Applies the gradients; None for teachers.
    """

    def __init__(
        self, net: StackedNet, trees: Sequence[Tree], batch_size: int, optimiser: Optimiser | None
    ) -> None:
        self._net = net
        self._form = Form.of({name: trees[0][name] for name in net.names})
        self._turned = net.are_turned(batch_size)
        self._optimiser = optimiser
        self._params, self._gradients = stack(trees, net.names, self._turned), list[Tensor]()
        if optimiser is not None:
            self._params = own(self._params, self._turned)
            self._gradients = [torch.empty_like(param) for param in self._params]
            self._state = optimiser.start(self._params)
        self._num_at_work = len(trees)
        # The same neighbours meet at every pass.
        self._parts: dict[tuple[int, int], tuple[list[Tensor], list[Tensor]]] = {}

    def like_params(self, trees: Sequence[Tree]) -> dict[str, Tensor]:
        """Return trees of each client like the parameters, laid out like these."""
        return dict(zip(self._net.names, stack(trees, self._net.names, self._turned), strict=True))

    def live(self, clients: slice, *, with_autograd: bool) -> Nets:
        """Return the nets of some clients, as losses see them; autograd never follows teachers."""
        params, _ = self._part(clients)
        is_trained = self._optimiser is not None
        return self._net.live(params, is_trained=is_trained, is_followed=with_autograd and is_trained)

    def can_pad(self, num_clients: int, size: int, padded: int) -> bool:
        """Say whether to pad the batches of some clients: with the same bits, and at a gain."""
        return self._net.can_pad(self._params, num_clients, size, padded)

    def backward(
        self, clients: slice, nets: Nets, slopes: Sequence[Tensor | None], own_rows: OwnRows
    ) -> None:
        """Take the gradients of some clients, from their live nets and the slopes of these.

        Args:
            clients: Which ones.
            nets: Their live nets.
            slopes: Of each call, zero in rows of padding.
            own_rows: Which rows are not padding; empty where none is.
        """
        _, gradients = self._part(clients)
        nets.backward(slopes, gradients, own_rows)

    def update(self, num_clients: int, correct: Correction | None, extras: Mapping[str, Any]) -> None:
        """Apply the gradients of the first clients, those that are still at work.

        Args:
            num_clients: How many; never more than before.
            correct: Changes the gradients before.
            extras: What it needs beside them.
        """
        clients = slice(0, num_clients)
        if num_clients < self._num_at_work:
            slots = {name: _of(clients, tensors) for name, tensors in self._state.slots.items()}
            self._state = OptimiserState(slots, self._state.num_steps)
            self._num_at_work = num_clients
        params, moves = self._part(clients)
        if correct is not None:
            with torch.no_grad():
                moves = correct(cast(Any, self._net.live(params)), moves, extras)
        cast(Optimiser, self._optimiser).update(params, moves, self._state)

    def trees(self) -> list[RowTree | None]:
        """Return each client's parameters, or None where their sum is not finite.

        Each tree has memory of its own: a client may hold its model for many rounds, and would otherwise hold
        those of all clients that were trained with it.
        """
        rows = unstacked_rows(self._params)
        # Where the sum of squares is finite, no scalar is out of range.
        are_in_range = np.isfinite(np.einsum("ij,ij->i", rows, rows)).tolist()
        return [
            RowTree(row.copy(), self._form, is_in_range=is_in_range)
            if is_in_range or isfinite(row.sum())
            else None
            for row, is_in_range in zip(rows, are_in_range, strict=True)
        ]

    def _part(self, clients: slice) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters and the gradients of some clients."""
        key = clients.start, clients.stop
        if key not in self._parts:
            self._parts[key] = _of(clients, self._params), _of(clients, self._gradients)
        return self._parts[key]


def _of(clients: slice, tensors: Sequence[Any]) -> list[Any]:
    """Return the tensors of some clients; counts of steps, which have no dimension, are of all."""
    return [tensor if tensor is None or not tensor.ndim else tensor[clients] for tensor in tensors]
