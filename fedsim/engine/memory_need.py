"""The memory that a training job takes, known without running it.

At its peak a job holds the parameters, a gradient and the optimiser's slots for each of them, the model's
buffers, one mini-batch, and what the layers of a forward pass leave behind for the backward pass::

    4 B * params * (1 + 1 + slots) + buffers + batch + outputs of all layers

where plain SGD has no slot, SGD with momentum one and Adam two. It is a rule, not a measurement: workspaces
of the kernels, the framework itself and what an algorithm keeps beside its model are not counted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from fedsim.engine.training_config import TrainingConfig
from fedsim.models import Architecture
from fedsim.models.flops import measure
from fedsim.models.process_cache import cached

SCALAR_BYTES = 4
"""Parameters, gradients and slots are float32."""


def needed_bytes(architecture: Architecture, batch_size: int, training: TrainingConfig) -> int:
    """Return the memory that training takes at its peak, in bytes; slots are those of ``training``."""
    slots = 2 if training.optimiser == "adam" else int(training.momentum > 0)
    return SCALAR_BYTES * (2 + slots) * architecture.num_params + _passing_bytes(architecture, batch_size)


@lru_cache(maxsize=256)
def _passing_bytes(architecture: Architecture, batch_size: int) -> int:
    """Return the bytes of buffers, of a batch, and of what a forward pass over it leaves behind."""
    key = architecture.value and ("passing bytes", architecture.value, batch_size)
    return cached(key, lambda: _looked_through(architecture, batch_size))


def _looked_through(architecture: Architecture, batch_size: int) -> int:
    # Evaluation mode, so that BatchNorm takes a batch of one; the outputs are as large.
    net = architecture.skeleton().eval()
    x = architecture.samples(batch_size)
    label_bytes: int = getattr(torch, architecture.task.label_dtype).itemsize
    # By storage, since a view or a result in place takes no memory of its own. They are kept until the end,
    # lest a freed storage's place be taken by another.
    tensors = {x.untyped_storage()._cdata: x}

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor):
                tensors.setdefault(tensor.untyped_storage()._cdata, tensor)

    for module in net.modules():
        if not any(True for _ in module.children()):
            module.register_forward_hook(note)
    with torch.no_grad():
        measure(lambda: net(x))  # for its cache of operations: a recurrent net has thousands that are alike
    buffer_bytes = sum(buffer.nbytes for buffer in net.buffers())
    return label_bytes * batch_size + buffer_bytes + sum(tensor.nbytes for tensor in tensors.values())
