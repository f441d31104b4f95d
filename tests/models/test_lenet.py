from collections.abc import Callable

from fedsim.models import Architecture
from fedsim.task import Task


def test_parameter_counts_are_those_of_the_specification(make: Callable[..., Architecture]) -> None:
    architecture = make("cnn_ckt", Task((3, 32, 32), 10))
    assert architecture.below(-1).num_params == 75_826
    assert architecture.above(-1).num_params == 510
