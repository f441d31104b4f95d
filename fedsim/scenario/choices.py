"""The kinds of plugin that a scenario chooses, and the tables that choose them."""

# The base of a kind of plugin may be abstract: it is only compared with, never made.
# mypy: disable-error-code="type-abstract"

from __future__ import annotations

from fedsim.algorithms.aggregation.base import Aggregation
from fedsim.algorithms.base import Algorithm
from fedsim.data import DatasetPlugin, PartitionPlugin
from fedsim.data.augmentations.base import Augmentation
from fedsim.engine.executors.base import Executor
from fedsim.fleet import AvailabilityPlugin, DevicePlugin
from fedsim.fleet.entries import DEVICES
from fedsim.models import ModelPlugin
from fedsim.models.module_by_path import adopted
from fedsim.network import NetworkPlugin, OverheadConfig
from fedsim.plugin_choice import Choice, Kind, NamedChoice, Params, left_out
from fedsim.runtime.policies.pacing.base import Pacing
from fedsim.runtime.policies.selectors.base import Selector
from fedsim.runtime.policies.workloads.base import Workload

_SAME = "this is Flower's name: write partition = "

FLOWER_NAMES = {
    "IidPartitioner": f'{_SAME}"iid"',
    "DirichletPartitioner": (
        f'{_SAME}{{ name = "dirichlet_class", params = {{ alpha = ..., min_size = ..., cap = ... }} }}, with '
        "Flower's alpha, min_partition_size (10 in both if left out) and self_balancing (if left out, true "
        "there, false here)"
    ),
    "NaturalIdPartitioner": (
        f'{_SAME}"by_user", and name the column of Flower\'s partition_by in data.params of the data set '
        "(user of table and hugging_face)"
    ),
    "PathologicalPartitioner": (
        f'{_SAME}{{ name = "two_class", params = {{ spread = 0.0 }} }} for two classes and the mode '
        '"deterministic"; else the nearest is { name = "classes_per_client", params = { classes = ... } }, '
        "with Flower's num_classes_per_partition, under which all clients have equally many samples"
    ),
}
"""What to write instead of each of Flower's names of partitioners.

A scenario has one name for one thing, so they are no aliases. The draws differ, as the generators do.
``partition_by`` is no parameter here, since a data set says which are its labels and users.
"""

ALGORITHM = Kind("algorithm", "fedsim.algorithms", Algorithm)
DATASET = Kind("data set", "fedsim.data", DatasetPlugin)
DEVICE = Kind("device class", DEVICES, DevicePlugin)
EXECUTOR = Kind("executor", "fedsim.engine.executors", Executor)
MODEL = Kind("model", "fedsim.models", ModelPlugin, adopted, "a torch.nn.Module class")
NETWORK = Kind("network model", "fedsim.network", NetworkPlugin)
PARTITION = Kind("partition", "fedsim.data.partitions", PartitionPlugin, elsewhere=FLOWER_NAMES)


class AggregationChoice(NamedChoice):
    """How the server combines the models that clients send."""

    KIND = Kind("aggregation", "fedsim.algorithms.aggregation", Aggregation)
    name: str = "mean"


class AlgorithmChoice(NamedChoice):
    """The algorithm."""

    KIND = ALGORITHM
    name: str = "fedavg"


class AugmentationChoice(NamedChoice):
    """A transformation of images."""

    KIND = Kind("augmentation", "fedsim.data.augmentations", Augmentation)
    name: str


class AvailabilityChoice(NamedChoice):
    """When clients are there."""

    KIND = Kind("availability model", "fedsim.fleet.availability", AvailabilityPlugin)
    name: str = "always"


class ModelChoice(NamedChoice):
    """An architecture."""

    KIND = MODEL
    name: str
    """Model: one of ``fedsim.models``, or a dotted path, also of a torch.nn.Module class, whose arguments
    params are; the label if left out."""


class NetworkChoice(Choice):
    """How transfers move over the links."""

    KIND = NETWORK
    KEY = "model"
    model: str = "fluid"
    params: Params = left_out()
    overhead: OverheadConfig = OverheadConfig()
    """What protocols add to each message on the link."""


class PacingChoice(NamedChoice):
    """When a round closes."""

    KIND = Kind("pacing", "fedsim.runtime.policies.pacing", Pacing)
    name: str = "synchronous"


class PartitionChoice(NamedChoice):
    """Who holds which sample."""

    KIND = PARTITION
    name: str = "iid"


class SelectorChoice(NamedChoice):
    """Who is asked."""

    KIND = Kind("selector", "fedsim.runtime.policies.selectors", Selector)
    name: str = "uniform"


class WorkloadChoice(NamedChoice):
    """How much local work a dispatch is."""

    KIND = Kind("workload", "fedsim.runtime.policies.workloads", Workload)
    name: str = "fixed"


class PublicSource(NamedChoice):
    """Another data set."""

    KIND = DATASET
