"""Federated averaging as a bare sequential loop in plain torch, the reference of ``bench_train.py``.

One thread and one net, whose parameters are set to the global ones before each client trains. Nothing of
fedsim is imported, and nothing is simulated. As a script it trains FedAvg's CNN on generated images and
prints its peak memory, MiB.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Samples = tuple[Tensor, Tensor]
"""Inputs ``[n, ...]`` and labels ``[n]``."""

Instant = tuple[float, float]
"""Real time, and processor time of all threads, s."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The training of a round."""

    batch_size: int
    asked: int  # clients that train
    merged: int | None = None  # the first of them enter the mean; all if None
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    adam: bool = False  # instead of SGD
    mu: float = 0.0  # weight of FedProx's proximal term
    evaluate_every: int = 0  # rounds between two evaluations; 0: none


def mlp(hidden: int = 64) -> nn.Module:
    """Return an MLP from 64 features to ten classes."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def logistic() -> nn.Module:
    """Return a softmax regression from 64 features to ten classes."""
    return nn.Linear(64, 10)


def cnn() -> nn.Module:
    """Return FedAvg's CNN for images of 1 x 28 x 28 and ten classes, 1 663 370 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def fedavg(
    net: nn.Module, clients: Sequence[Samples], test: Samples | None, training: Training, rounds: int
) -> list[Instant]:
    """Train the net in place; return the instant at which each round has ended."""
    torch.set_num_threads(1)
    params: list[Tensor] = list(net.parameters())
    model = [param.detach().clone() for param in params]
    ends = []
    for number in range(1, rounds + 1):
        cohort = torch.randperm(len(clients))[: training.asked].tolist()
        merged = set(cohort[: training.merged])
        num_samples = sum(len(clients[client][1]) for client in merged)
        mean = [torch.zeros_like(param) for param in model]
        for client in cohort:
            with torch.no_grad():
                torch._foreach_copy_(params, model)
            train(net, params, model, clients[client], training)
            if client in merged:
                with torch.no_grad():
                    torch._foreach_add_(mean, params, alpha=len(clients[client][1]) / num_samples)
        model = mean
        if test is not None and training.evaluate_every and number % training.evaluate_every == 0:
            with torch.no_grad():
                torch._foreach_copy_(params, model)
                evaluate(net, test)
        if model[0].is_cuda:
            torch.cuda.synchronize()
        ends.append(now())
    return ends


def train(
    net: nn.Module, params: list[Tensor], model: list[Tensor], samples: Samples, training: Training
) -> None:
    """Train the net for one epoch, from the parameters that it has; ``model`` anchors the proximal term."""
    order = torch.randperm(len(samples[1]))
    x, y = (torch.split(values[order], training.batch_size) for values in samples)
    adam = torch.optim.Adam(params, lr=training.lr, fused=True) if training.adam else None
    velocity: tuple[Tensor, ...] = ()
    for inputs, labels in zip(x, y, strict=True):
        gradients = torch.autograd.grad(cross_entropy(net(inputs), labels), params)
        with torch.no_grad():
            if training.mu:
                torch._foreach_add_(gradients, torch._foreach_sub(params, model), alpha=training.mu)
            if training.weight_decay:
                torch._foreach_add_(gradients, params, alpha=training.weight_decay)
            if velocity:
                torch._foreach_mul_(velocity, training.momentum)
                torch._foreach_add_(velocity, gradients)
            elif training.momentum:
                velocity = gradients
            if adam is None:
                torch._foreach_add_(params, velocity or gradients, alpha=-training.lr)
                continue
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        adam.step()


def evaluate(net: nn.Module, samples: Samples) -> tuple[float, float]:
    """Return accuracy and mean loss."""
    logits = net(samples[0])
    hits = (logits.argmax(1) == samples[1]).float().mean()
    return hits.item(), cross_entropy(logits, samples[1]).item()


def now() -> Instant:
    """Return this instant."""
    return time.perf_counter(), time.process_time()


if __name__ == "__main__":
    images, classes = torch.randn(60_000, 1, 28, 28), torch.randint(10, (60_000,))
    holdings = list(zip(torch.split(images, 60), torch.split(classes, 60), strict=True))
    fedavg(cnn(), holdings, None, Training(batch_size=20, asked=20), rounds=3)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
