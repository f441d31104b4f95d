"""``run.json``: where, when and with what a run was done. Everything that depends on the host is here."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

from fedsim import __version__
from fedsim.mkl_mode import mkl_mode
from fedsim.plugins import name_of
from fedsim.report.energy import constants
from fedsim.scenario.build import Plan

Bus = Literal["memory", "http"]
"""What carries messages: simulated links in one process, or sockets between several."""

LIBRARIES = (
    "aiohttp",
    "msgpack",
    "numpy",
    "pyarrow",
    "pydantic",
    "scikit-learn",
    "structlog",
    "torch",
    "torchvision",
)


def provenance(
    plan: Plan,
    started_at: datetime,
    wall_s: float,
    bus: Bus = "memory",
    tracker_failures: Mapping[str, int] | None = None,
    cohorts: Mapping[str, int] | None = None,
    *,
    status: str = "complete",
) -> dict[str, Any]:
    """Return what ``run.json`` holds for a run, by default one that has ended well."""
    executor, model = plan.parts.executor, plan.parts.server_model
    return {
        "status": status,
        "started_at": started_at.isoformat(timespec="seconds"),
        "wall_s": round(wall_s, 3),
        "fedsim": __version__,
        "python": platform.python_version(),
        "libraries": {name: library_version(name) for name in LIBRARIES},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "mkl_mode": mkl_mode(),
        "numerics": plan.parts.numerics,
        "device": _device(plan.parts.device),
        "executor": name_of(executor),
        "workers": executor.config.workers,
        "batching": executor.config.batching,
        "jobs": {kind: dict(ways) for kind, ways in sorted(executor.jobs_done.items())},
        **executor.facts,
        **({"server_model": {"label": model.label, "parameters": model.num_params}} if model else {}),
        "bus": bus,
        "verify": plan.parts.verify,
        **({"cohorts": dict(cohorts)} if cohorts else {}),
        **({"energy": constants(plan.parts.fleet, config)} if (config := plan.parts.energy) else {}),
        **({"fork": dict(plan.origin)} if plan.origin else {}),
        **({"tracker_failures": dict(tracker_failures)} if tracker_failures else {}),
    }


@cache
def library_version(name: str) -> str | None:
    """Return the version of a library that is installed; None where it is not."""
    if name == "fedsim":
        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the kind of processor, such as ``"AuthenticAMD family 25 model 1 AVX2"``."""
    try:
        lines = cpuinfo.read_text("utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    known = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    vendor = known.get("vendor_id", platform.machine())
    kind = [f"{name.removeprefix('cpu ')} {known[name]}" for name in ("cpu family", "model") if name in known]
    return " ".join([vendor, *kind, torch.backends.cpu.get_cpu_capability()])


def _device(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    return f"{device} ({torch.cuda.get_device_name(torch.device(device))})"
