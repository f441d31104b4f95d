"""Federated learning as bare sequential loops in plain torch, the references of ``bench_train.py``.

One thread and one net of each architecture, whose parameters are set before each client trains. Nothing of
fedsim is imported, and nothing is simulated. As a script it trains FedAvg's CNN on generated images and
prints its peak memory, MiB.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, mse_loss

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


class Reader(nn.Module):
    """FedAvg's net for the next of 80 characters, with one LSTM layer of 64 units."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(80, 8), nn.LSTM(8, 64, batch_first=True)
        self.head = nn.Linear(64, 80)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of texts ``[b, length]``."""
        logits: Tensor = self.head(self.lstm(self.embedding(x))[0][:, -1])
        return logits


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


def ditto(
    net: nn.Module, clients: Sequence[Samples], training: Training, rounds: int, weight: float
) -> list[Instant]:
    """Train as :func:`fedavg`, and each client's own model, held near the global one with a weight."""
    params: list[Tensor] = list(net.parameters())
    owned = [[param.detach().clone() for param in params] for _ in clients]
    model, ends, near = owned[0], list[Instant](), replace(training, mu=weight)
    for _ in range(rounds):
        cohort = torch.randperm(len(clients))[: training.asked].tolist()
        num_samples = sum(len(clients[client][1]) for client in cohort)
        mean = [torch.zeros_like(param) for param in model]
        for client in cohort:
            for start, its_training in ((model, training), (owned[client], near)):
                with torch.no_grad():
                    torch._foreach_copy_(params, start)
                train(net, params, model, clients[client], its_training)
                with torch.no_grad():
                    if its_training is near:
                        owned[client] = [param.clone() for param in params]
                    else:
                        torch._foreach_add_(mean, params, alpha=len(clients[client][1]) / num_samples)
        model = mean
        ends.append(now())
    return ends


def codistillation(
    nets: Sequence[nn.Module],
    clients: Sequence[Samples],
    public: Tensor,
    training: Training,
    rounds: int,
    learn_weights: bool,
) -> list[Instant]:
    """Train each client's own model after it has learned from all predictions on public samples.

    Args:
        nets: The architectures, which clients have in turns.
        clients: Their samples.
        public: The public samples, in batches.
        training: The training of a round.
        rounds: How many rounds.
        learn_weights: Whether each client has a teacher of its own, whose weights are learned (KT-pFL); else
            all learn from the mean of logits (FedMD).
    """
    of_nets: list[list[Tensor]] = [list(net.parameters()) for net in nets]
    owned = [
        [param.detach().clone() for param in of_nets[client % len(nets)]] for client in range(len(clients))
    ]
    weights = torch.full((len(clients), len(clients)), 1 / len(clients))
    batches, ends = torch.split(public, 32), list[Instant]()
    for _ in range(rounds):
        cohort = sorted(torch.randperm(len(clients))[: training.asked].tolist())
        predictions = []
        with torch.no_grad():
            for client in cohort:
                torch._foreach_copy_(of_nets[client % len(nets)], owned[client])
                predictions.append(torch.cat([nets[client % len(nets)](x) for x in batches]))
        given = torch.stack(predictions)
        if learn_weights:
            given = given.softmax(-1)
            block = weights[cohort][:, cohort].requires_grad_()
            shares = block / block.sum(1, keepdim=True)
            teachers = torch.einsum("kl,lpn->kpn", shares, given)
            divergences = kl_div(teachers.log(), given, reduction="batchmean")
            (slope,) = torch.autograd.grad(divergences, block)
            weights[torch.tensor(cohort)[:, None], torch.tensor(cohort)] -= training.lr * slope
        else:
            teachers = given.mean(0).expand_as(given)
        for client, teacher in zip(cohort, teachers.detach(), strict=True):
            net, params = nets[client % len(nets)], of_nets[client % len(nets)]
            with torch.no_grad():
                torch._foreach_copy_(params, owned[client])
            order = torch.randperm(len(public))
            for chosen in torch.split(order, 32):
                logits, wanted = net(public[chosen]), teacher[chosen]
                if learn_weights:
                    loss = kl_div(logits.log_softmax(-1), wanted, reduction="batchmean")
                else:
                    loss = mse_loss(logits, wanted)
                gradients = torch.autograd.grad(loss, params)
                with torch.no_grad():
                    torch._foreach_add_(params, gradients, alpha=-training.lr)
            train(net, params, params, clients[client], training)
            owned[client] = [param.detach().clone() for param in params]
        ends.append(now())
    return ends


def now() -> Instant:
    """Return this instant."""
    return time.perf_counter(), time.process_time()


if __name__ == "__main__":
    images, classes = torch.randn(60_000, 1, 28, 28), torch.randint(10, (60_000,))
    holdings = list(zip(torch.split(images, 60), torch.split(classes, 60), strict=True))
    fedavg(cnn(), holdings, None, Training(batch_size=20, asked=20), rounds=3)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
