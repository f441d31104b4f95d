"""Where the host waits for the device on which jobs run, found without one: the meta device stands for it."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fedsim.engine.execute import run
from fedsim.engine.jobs import Job
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models.no_compiler import DispatchMode, free_meta_kernels


class _Watch(DispatchMode):
    """Notes what would wait on a real device; what comes from the meta device is zero.

    An operation whose result depends on values there in another way raises by itself.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense" and tensors[0].is_meta:
            self.waits.append("number")
            return 0
        if name == "_to_copy" and (there := given.get("device")) is not None:
            (tensor,) = tensors
            if tensor.is_meta and there.type == "cpu":
                self.waits.append("copy to the CPU")
                return torch.zeros(tensor.shape, dtype=tensor.dtype)
            if tensor.is_cpu and there.type == "meta" and not given.get("non_blocking"):
                self.waits.append("copy to the device")
        # Kernels take numbers of the CPU with them.
        elif len({tensor.device for tensor in tensors if tensor.ndim or tensor.is_meta}) > 1:
            self.waits.append(str(func))
        return func(*args, **given)


def device_waits(job: Job, resources: Resources) -> list[str]:
    """Run a job on the meta device; return what the host would wait for, in order."""
    free_meta_kernels()
    away = Resources.of(resources.data, resources.architectures, "meta")
    watch = _Watch()
    with watch:
        run(job, Worker(away, threading.Event()))
    return watch.waits
