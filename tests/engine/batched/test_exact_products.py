"""Products of many clients at once, and of padded batches, have the bits of one client's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsim.engine.batched import exact_products
from fedsim.engine.batched.exact_products import can_pad, can_pad_sums, same_bits
from fedsim.engine.execute import ALIGNMENT_BYTES, one_torch_thread


@given(
    st.integers(1, 24),
    st.integers(1, 24),
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(0, 2**31),
)
def test_a_padded_batch_has_its_own_bits(b: int, more: int, i: int, o: int, seed: int) -> None:
    with one_torch_thread():
        if not can_pad(b, b + more, i, o):
            return
        generator = torch.Generator().manual_seed(seed)
        num_clients = 2 + seed % 9
        x, grad_outputs, bias, weight = (
            torch.randn(num_clients, *shape, generator=generator)
            for shape in ((b + more, i), (b + more, o), (o,), (o, i))
        )
        x.relu_()
        grad_outputs[:, b:] = 0
        larger, own = (exact_products.exact_products(size, i, o) for size in (b + more, b))
        x_own, grad_outputs_own = x[:, :b].contiguous(), grad_outputs[:, :b].contiguous()
        assert same_bits(larger.outputs(x, weight, bias)[:, :b], own.outputs(x_own, weight, bias))
        assert same_bits(
            larger.input_gradients(grad_outputs, weight)[:, :b], own.input_gradients(grad_outputs_own, weight)
        )
        of_larger, of_own = (
            way.weight_gradients(*factors, torch.empty_like(weight))
            for way, factors in ((larger, (grad_outputs, x)), (own, (grad_outputs_own, x_own)))
        )
        assert same_bits(of_larger, of_own)
        if can_pad_sums(b, b + more, o):
            assert same_bits(grad_outputs.sum(1), grad_outputs_own.sum(1))


def test_full_batches_can_be_padded() -> None:
    with one_torch_thread():
        assert can_pad(8, 10, 64, 64)
        assert can_pad_sums(5, 10, 64)


def test_a_product_that_depends_on_other_rows_cannot_be_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(bias[:, None], x, weight.mT) + x.shape[1] * 1e-3

    def changed(b: int, i: int, o: int) -> exact_products.Products:
        return original(b, i, o)._replace(outputs=outputs)

    original = exact_products.exact_products
    monkeypatch.setattr(exact_products, "exact_products", changed)
    can_pad.cache_clear()
    with one_torch_thread():
        assert not can_pad(8, 10, 64, 64)
    can_pad.cache_clear()


def test_products_one_by_one_have_the_operands_of_a_single_client(monkeypatch: pytest.MonkeyPatch) -> None:
    places = list[int]()

    def noting(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*operands: Tensor) -> Tensor:
            places.extend(operand.data_ptr() % ALIGNMENT_BYTES for operand in operands)
            return function(*operands)

        return call

    for name in ("addmm", "mm"):
        monkeypatch.setattr(torch, name, noting(getattr(torch, name)))
    b, i, o, m = 3, 5, 7, 4
    x, grad_outputs, weight, bias = (
        torch.randn(m + 1, *shape)[1:] for shape in ((b, i), (b, o), (o, i), (o,))
    )
    assert x.data_ptr() % ALIGNMENT_BYTES
    alone = exact_products.exact_products(b, i, o, is_alone=True)
    outputs = alone.outputs(x, weight, bias)
    gradients = alone.input_gradients(grad_outputs, weight)
    alone.weight_gradients(grad_outputs, x, torch.empty_like(weight))
    assert len(places) == m * (3 + 2 + 2)
    assert set(places) == {0}
    assert torch.allclose(outputs, torch.einsum("mbi,moi->mbo", x, weight) + bias[:, None], atol=1e-5)
    assert torch.allclose(gradients, torch.einsum("mbo,moi->mbi", grad_outputs, weight), atol=1e-5)


def test_where_a_bit_differs_products_are_computed_one_by_one() -> None:
    assert exact_products._exact(torch.abs, torch.neg, [(-torch.ones(2),)]) is torch.abs
    assert exact_products._exact(torch.abs, torch.neg, [(-torch.ones(2),), (torch.ones(2),)]) is torch.neg
