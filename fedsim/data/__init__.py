"""Data sets, how they are spread over clients, and the parts that nobody may train on.

A data set (one file of this folder) gives arrays; a partition (one file of ``partitions/``) says which client
holds which sample; :func:`federate` puts both together. Importing this package loads neither torch nor
scikit-learn: a data set imports what it needs when it is loaded.
"""

from fedsim.data.base import Dataset, DatasetPlugin, LoadContext
from fedsim.data.client_split import SPLITS, Shares, Split, shares_fault
from fedsim.data.federated import FederatedData, federate
from fedsim.data.fingerprints import Fingerprint, differences, fingerprint
from fedsim.data.partitions.base import PartitionPlugin, Pool
from fedsim.data.spreading import Spreading

__all__ = [
    "SPLITS",
    "Dataset",
    "DatasetPlugin",
    "FederatedData",
    "Fingerprint",
    "LoadContext",
    "PartitionPlugin",
    "Pool",
    "Shares",
    "Split",
    "Spreading",
    "differences",
    "federate",
    "fingerprint",
    "shares_fault",
]
