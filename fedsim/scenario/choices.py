"""The kinds of plugin that a scenario chooses, and the tables that choose them."""

# The base of a kind of plugin may be abstract: it is only compared with, never made.
# mypy: disable-error-code="type-abstract"

from __future__ import annotations

from fedsim.algorithms.base import Algorithm
from fedsim.data import DatasetPlugin, PartitionPlugin
from fedsim.data.augmentations.base import Augmentation
from fedsim.data.partitions.flower_names import FLOWER_NAMES
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

AUGMENTATION = Kind("augmentation", "fedsim.data.augmentations", Augmentation)
ALGORITHM = Kind("algorithm", "fedsim.algorithms", Algorithm)
AVAILABILITY = Kind("availability model", "fedsim.fleet.availability", AvailabilityPlugin)
DATASET = Kind("data set", "fedsim.data", DatasetPlugin)
DEVICE = Kind("device class", DEVICES, DevicePlugin)
EXECUTOR = Kind("executor", "fedsim.engine.executors", Executor)
MODEL = Kind("model", "fedsim.models", ModelPlugin, adopted, "a torch.nn.Module class")
NETWORK = Kind("network model", "fedsim.network", NetworkPlugin)
PACING = Kind("pacing", "fedsim.runtime.policies.pacing", Pacing)
PARTITION = Kind("partition", "fedsim.data.partitions", PartitionPlugin, elsewhere=FLOWER_NAMES)
SELECTOR = Kind("selector", "fedsim.runtime.policies.selectors", Selector)
WORKLOAD = Kind("workload", "fedsim.runtime.policies.workloads", Workload)


class AlgorithmChoice(NamedChoice):
    """The algorithm."""

    KIND = ALGORITHM
    name: str = "fedavg"


class AugmentationChoice(NamedChoice):
    """A transformation of images."""

    KIND = AUGMENTATION
    name: str


class AvailabilityChoice(NamedChoice):
    """When clients are there."""

    KIND = AVAILABILITY
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

    KIND = PACING
    name: str = "synchronous"


class PartitionChoice(NamedChoice):
    """Who holds which sample."""

    KIND = PARTITION
    name: str = "iid"


class SelectorChoice(NamedChoice):
    """Who is asked."""

    KIND = SELECTOR
    name: str = "uniform"


class WorkloadChoice(NamedChoice):
    """How much local work a dispatch is."""

    KIND = WORKLOAD
    name: str = "fixed"


class PublicSource(NamedChoice):
    """Another data set."""

    KIND = DATASET
