"""``run.json``: what it says about the host."""

import platform
from pathlib import Path

import pytest
import torch

from fedsim.report.provenance import processor

AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n"


@pytest.mark.parametrize(
    ("cpuinfo", "kind"),
    [
        (AMD + AMD.replace("25", "26"), "AuthenticAMD family 25 model 1 AVX2"),
        (ARM, "arm64 AVX2"),
        (None, "arm64 AVX2"),
    ],
)
def test_the_kind_of_processor_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpuinfo: str | None, kind: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert processor(tmp_path / "cpuinfo") == kind
