"""The losses of many clients that train together, and their gradients with respect to logits or features.

Autograd derives these from the losses' own code. m: clients, b: batch, N: classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedsim.engine.batched.dense_net import LiveNets
from fedsim.engine.batched.feed import Batches
from fedsim.engine.execute import one_torch_thread
from fedsim.engine.jobs import Fit
from fedsim.engine.losses import MODEL, TRAIN, Extras, Loss, empirical_loss, sums_of_losses
from fedsim.engine.steps import Descent
from fedsim.task import Task


class Losses:
    """What the fits of a tile descend; plain cross-entropies need no autograd."""

    def __init__(self, jobs: Sequence[Fit], task: Task) -> None:
        self._loss, self._settings = _joint([cast(Descent, job.step).loss for job in jobs])
        self.are_cross_entropies = self._loss is empirical_loss and task.kind == "classification"
        self._nums_steps = [job.num_steps for job in jobs]  # a result that is kept keeps this, and no jobs
        self._trained = jobs[0].trained
        self._values = np.empty((len(jobs), jobs[0].num_steps))
        self._log_p: dict[int, list[tuple[slice, int, Tensor]]] = {}

    def grad_outputs(
        self, step: int, batches: Batches, nets: Mapping[str, LiveNets], extras: Extras
    ) -> Mapping[str, Sequence[Tensor | None]]:
        """Return the gradients of the outputs of each call of each trained net; the losses are remembered."""
        if self.are_cross_entropies:
            batch = batches.by_stream[TRAIN]
            logits = nets[MODEL](batch.x)
            return {MODEL: [self._cross_entropy_gradients(step, batches, logits, batch.labels)]}
        settings = {name: values[batches.clients] for name, values in self._settings.items()}
        loss: Any = replace(cast(Any, self._loss), **settings) if settings else self._loss
        given = loss(nets, batches.by_stream, extras)
        by_name = {self._trained[0]: given} if isinstance(given, Tensor) else given
        first, *others = (values.detach() for values in by_name.values())
        self._values[batches.clients, step] = sum(others, start=first).numpy()
        last = self._trained[-1]
        return {
            name: torch.autograd.grad(
                by_name[name],
                nets[name].outputs,
                torch.ones_like(by_name[name]),
                retain_graph=name != last,
                allow_unused=True,
            )
            for name in self._trained
        }

    def mean(self, number: int) -> float:
        """Return the mean over the steps of a fit."""
        return fmean(self._by_fit[number][: self._nums_steps[number]])

    @cached_property
    def _by_fit(self) -> list[list[float]]:
        """The losses of each fit at each step, worked out once somebody asks: few ask for losses."""
        if self._log_p:
            losses = [-torch.cat([log_p for _, _, log_p in parts])[..., 0] for parts in self._log_p.values()]
            with one_torch_thread():
                sums, first = sums_of_losses(losses).numpy(), 0
            for batch_size, parts in self._log_p.items():
                for clients, step, log_p in parts:
                    end = first + len(log_p)
                    self._values[clients, step] = sums[first:end] / np.float32(batch_size)
                    first = end
        return self._values.tolist()

    def _cross_entropy_gradients(self, step: int, batches: Batches, logits: Tensor, labels: Tensor) -> Tensor:
        """Return what autograd would, in fewer steps: most fits descend nothing but the cross-entropy.

        In rows of padding it is zero.
        """
        labels, own_rows = labels[..., None], batches.own_rows
        log_p = torch.log_softmax(logits, -1)
        given = log_p.gather(-1, labels)
        grad_log_p = torch.zeros_like(log_p)
        for places, size in own_rows:
            # The losses are added up at the end, for all steps at once.
            clients = slice(batches.clients.start + places.start, batches.clients.start + places.stop)
            self._log_p.setdefault(size, []).append((clients, step, given[places, :size]))
            grad_log_p[places, :size].scatter_(-1, labels[places, :size], -1.0 / size)
        return cast(Tensor, torch.ops.aten._log_softmax_backward_data(grad_log_p, log_p, -1, torch.float32))


def _joint(losses: Sequence[Loss]) -> tuple[Loss, dict[str, Tensor]]:
    """Return one of the clients' losses, and by name the settings in which they differ, float64 ``[m]``."""
    first = losses[0]
    if all(loss == first for loss in losses):
        return first, {}
    names = [one.name for one in fields(cast(Any, first))]
    by_name = {name: [getattr(loss, name) for loss in losses] for name in names}
    return first, {
        name: torch.tensor(values, dtype=torch.float64)
        for name, values in by_name.items()
        if any(value != values[0] for value in values)
    }
