"""The cross-entropies of many clients have the bits of torch's of one client."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.cross_entropies import cross_entropies, sums_of_losses
from fedsim.rng import Key


@pytest.mark.parametrize("batch_size", [1, 2, 16, 17, 33, 300, 4100])
def test_losses_are_added_up_as_torch_does(batch_size: int) -> None:
    log_p = torch.randn(20, batch_size, 3, generator=Key.root(0).torch()).log_softmax(-1)
    losses, labels = -log_p[..., 0], torch.zeros(batch_size, dtype=torch.int64)
    expected = [F.nll_loss(one, labels, reduction="sum").item() for one in log_p]
    assert sums_of_losses([losses]).tolist() == expected
    # Beside longer ones too.
    longer = torch.ones(3, batch_size + 700)
    sums = sums_of_losses([losses[:8], longer, losses[8:]]).tolist()
    assert sums == expected[:8] + [batch_size + 700.0] * 3 + expected[8:]


@given(
    num_clients=st.integers(1, 70),
    batch_size=st.integers(1, 70),
    num_classes=st.integers(1, 70),
    factor=st.sampled_from([1.0, 0.3, 0.0]),
    reduction=st.sampled_from(["mean", "sum"]),
    seed=st.integers(0, 2**31),
)
def test_values_and_gradients_are_those_of_one_client(
    num_clients: int, batch_size: int, num_classes: int, factor: float, reduction: str, seed: int
) -> None:
    generator = Key.root(seed).torch()
    logits = 9 * torch.randn(num_clients, batch_size, num_classes, generator=generator)
    labels = torch.randint(num_classes, (num_clients, batch_size), generator=generator)
    losses = cross_entropies(logits.requires_grad_(), labels, reduction)  # type: ignore[arg-type]
    (gradients,) = torch.autograd.grad((factor * losses).sum(), logits)
    for client in range(num_clients):
        one = logits[client].detach().requires_grad_()
        loss = F.cross_entropy(one, labels[client], reduction=reduction)
        (gradient,) = torch.autograd.grad(factor * loss, one)
        assert losses[client].item() == loss.item()
        assert gradients[client].numpy().tobytes() == gradient.numpy().tobytes()
