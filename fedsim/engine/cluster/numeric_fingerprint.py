"""Fingerprint that shows whether two processes compute the same numbers.

Equal versions of torch give equal bits on processors with equal instructions, and mostly other ones
elsewhere. So each process trains every architecture of the run for two steps on drawn samples, and compares
the digest of what comes out.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

import torch

from fedsim.engine.execute import fit, one_torch_thread, own_generators_only
from fedsim.engine.jobs import Fit, InlineSamples, Stream
from fedsim.engine.losses import MODEL, TRAIN
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources, Worker
from fedsim.mkl_mode import mkl_mode
from fedsim.params import Array, unwarned
from fedsim.rng import Key
from fedsim.task import Task

NumericFingerprint = Mapping[str, str]
"""Texts by what they describe; the digest of a training begins with #."""

BATCH_SIZE = 20
"""Samples of each of the two steps."""

PIN = (
    "set ATEN_CPU_CAPABILITY=avx2, ONEDNN_MAX_CPU_ISA=AVX2 and MKL_CBWR=COMPATIBLE for fedsim and "
    "for 'ray start' on every node, and install the same torch everywhere"
)
"""How processes come to the same numbers."""


def numeric_fingerprint(resources: Resources) -> NumericFingerprint:
    """Return the fingerprint of this process, for the architectures and the device of a run."""
    described = versions()
    if resources.device.type == "cuda":
        described["device"] = torch.cuda.get_device_name(resources.device)
    with one_torch_thread(), unwarned():
        for label in resources.architectures:
            # A net that cannot be trained says so where it is: in the error of a client's job.
            with suppress(Exception):
                with own_generators_only(resources.device):
                    digest = _trained(label, resources)
                described[f"training of {label!r}"] = f"#{digest}"
    return described


def versions() -> dict[str, str]:
    """Return the part of the fingerprint for which nothing is trained."""
    return {
        "torch": torch.__version__,
        "instruction set": torch.backends.cpu.get_cpu_capability(),
        "MKL's mode": str(mkl_mode()),
    }


def differences(here: NumericFingerprint, there: NumericFingerprint) -> list[str]:
    """Return one phrase for each thing in which two fingerprints differ."""
    texts = []
    for name in {**here, **there}:
        mine, its = here.get(name, "unknown"), there.get(name, "unknown")
        if mine != its:
            texts.append(
                f"{name} (other bits)" if "#" in mine + its else f"{name} ({mine} here, {its} there)"
            )
    return texts


def _trained(label: str, resources: Resources) -> str:
    key, task = Key.root(0).child("numeric fingerprint"), resources.data.task
    model = resources.architectures[label].initial(key.child("start"))
    samples = _drawn(task, 2 * BATCH_SIZE, key.child("samples"))
    job = Fit(
        step=Descent(),
        models={MODEL: model},
        trained=(MODEL,),
        streams={TRAIN: Stream(samples, BATCH_SIZE)},
        optimisers={MODEL: Sgd(0.1, momentum=0.9)},
        num_steps=2,
        seed=0,
    )
    return fit(job, Worker(resources, threading.Event())).model.digest().hex()


def _drawn(task: Task, count: int, key: Key) -> InlineSamples:
    """Return samples of a task's form, with labels."""
    generator = key.numpy()
    shape = (count, *task.input_shape)
    x: Array = generator.standard_normal(shape)
    if task.vocabulary:
        x = generator.integers(0, task.vocabulary, shape)
    y = (
        generator.standard_normal(count)
        if task.kind == "regression"
        else generator.integers(0, task.num_outputs, count)
    )
    return InlineSamples(x.astype(task.dtype), y.astype(task.label_dtype))
