"""Copies from the CPU to the device on which jobs run."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the CPU on a device: itself where that is the CPU, else a copy.

    Nobody waits for the copy. Work that is given to the current stream afterwards finds it there.
    """
    if device.type == "cpu":
        return tensor
    if device.type == "cuda":
        # From other memory the host copies itself, and waits for all work before.
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
