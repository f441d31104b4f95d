from collections.abc import Callable

from fedsim.models import Architecture
from fedsim.task import Task


def test_parameter_counts_are_those_of_the_specification(make: Callable[..., Architecture]) -> None:
    architecture = make("cnn_ckt", Task((3, 32, 32), 10))
    net = architecture.skeleton()
    sizes = {name: parameter.numel() for name, parameter in net.named_parameters()}
    assert sum(size for name, size in sizes.items() if net.part_of(name) == "base") == 75_826
    assert sum(size for name, size in sizes.items() if net.part_of(name) == "head") == 510
