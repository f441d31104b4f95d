"""Tensors at addresses at which those of a single client lie."""

import torch

from fedsim.engine.alignment import ALIGNMENT_BYTES, aligned


def test_only_what_is_not_aligned_is_copied() -> None:
    whole = torch.arange(40.0)
    for first in range(9):
        part = whole[first : first + 20]
        its = aligned(part)
        assert its.data_ptr() % ALIGNMENT_BYTES == 0
        assert torch.equal(its, part)
        assert (its is part) == (first % 4 == 0)


def test_a_copy_keeps_the_layout() -> None:
    turned = torch.randn(8, 5)[1:].t()
    assert aligned(turned).stride() == turned.stride()
