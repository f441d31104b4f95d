"""Which operations have equal bits on different processors, and which nets are made of them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedsim.config import Config
from fedsim.mkl_mode import mkl_mode
from fedsim.models import Architecture, ModelPlugin, Net
from fedsim.models.portable_operations import PORTABLE, unportable, unportable_operations
from fedsim.task import Task

TOOL = Path(__file__).parents[2] / "tools/check_portable.py"


class Lengths(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).square().sum(1, keepdim=True).sqrt()


class OnlyInUse(Lengths):
    """The same outside training alone."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).sum(1, keepdim=True) if self.training else super().forward(x)


class WithRoots(ModelPlugin[Config]):
    """A net with a square root."""

    layer: type[nn.Module] = Lengths

    def build(self, task: Task) -> Net:
        return Net(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 8), self.layer()), nn.Linear(1, task.num_outputs)
        )


class WithRootsInUse(WithRoots):
    """A net with a square root outside training."""

    layer = OnlyInUse


class WithoutParameters(WithRoots):
    """A net that no gradient reaches."""

    def build(self, task: Task) -> Net:
        return Net(nn.Sequential(nn.Flatten()), nn.Identity())


@pytest.mark.parametrize(
    ("plugin", "names"), [(WithRoots, ["sqrt"]), (WithRootsInUse, ["sqrt"]), (WithoutParameters, [])]
)
def test_a_net_with_a_root_is_found(plugin: type[WithRoots], names: list[str]) -> None:
    assert unportable_operations(Architecture("roots", plugin(Config()), Task((1, 8, 8), 10))) == names


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x**0.5, ["pow(0.5)"]),
        (lambda x: x**2 + x.exp() @ x.log(), []),
        (lambda x: x.view(-1)[2:].reshape(2, 1).expand(2, 3) + 1, []),
        (lambda x: x.atan() + x.log10(), ["atan", "log10"]),
        (lambda x: x.double().log().float(), ["_to_copy of float64", "log of float64"]),
        (lambda x: torch._foreach_sqrt([x])[0], ["_foreach_sqrt"]),
    ],
)
def test_operations_are_seen(function: Callable[[Tensor], Tensor], names: list[str]) -> None:
    assert unportable(lambda: function(torch.ones(2, 2))) == names


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or mkl_mode() is None, reason="this is of Linux with MKL")
def test_the_operations_are_those_that_the_tool_computes() -> None:
    done = subprocess.run([sys.executable, TOOL, "--names"], capture_output=True, text=True, check=True)  # noqa: S603
    assert set(done.stdout.split()) == PORTABLE
