"""Where matrices lie in memory.

The bits of a matrix product can depend on the addresses of its operands, but not if these are multiples of 16
bytes. Tensors with memory of their own begin at such addresses; slices of other tensors need not.
"""

from __future__ import annotations

from torch import Tensor

ALIGNMENT_BYTES = 16


def aligned(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if it does not begin at a multiple of 16 bytes; autograd follows it."""
    return tensor if tensor.data_ptr() % ALIGNMENT_BYTES == 0 else tensor.clone()
