"""Data sets, how they are spread over clients, and the parts that nobody may train on.

A data set (one file of this folder) gives arrays; a partition (one file of ``partitions/``) says which client
holds which sample; :func:`federate` puts both together. Importing this package does not load torch: a data
set imports what it needs when it is loaded.
"""

from fedsim.data.base import Dataset, DatasetPlugin, LoadContext
from fedsim.data.client_split import SPLITS, Split
from fedsim.data.federated import FederatedData, federate
from fedsim.data.partitions.base import PartitionPlugin
from fedsim.data.spreading_settings import Spreading

__all__ = [
    "SPLITS",
    "Dataset",
    "DatasetPlugin",
    "FederatedData",
    "LoadContext",
    "PartitionPlugin",
    "Split",
    "Spreading",
    "federate",
]
