"""The settings by which a data set is spread over clients."""

from __future__ import annotations

from dataclasses import dataclass

from fedsim.data.augmentations.base import Augmentations
from fedsim.data.base import Dataset
from fedsim.data.client_split import AnyShares
from fedsim.data.public_from_other_data import Augment


@dataclass(frozen=True, slots=True, eq=False)
class Spreading:
    """How a data set is spread over clients; a scenario's tables and checks say what goes together."""

    num_clients: int
    shares: AnyShares
    public_size: int = 0
    public_users: float = 0.0
    public_source: Dataset | None = None
    public_augment: Augment = "none"
    public_at_clients: bool = True
    global_test_share: float = 0.0
    global_test_users: float = 0.0
    limit: int | None = None
    augmentations: Augmentations = ()

    @property
    def holds_out_users(self) -> bool:
        """Whether whole users are held out."""
        return self.public_users > 0 or self.global_test_users > 0
