"""The settings by which a data set is spread over clients."""

from __future__ import annotations

from dataclasses import dataclass

from fedsim.data.augmentations.base import Augmentations
from fedsim.data.base import Dataset
from fedsim.data.client_split import AnyShares, choices_of, shares_fault
from fedsim.data.public_from_other_data import Augment
from fedsim.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Spreading:
    """How a data set is spread over clients."""

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

    def __post_init__(self) -> None:
        for name, least in (("num_clients", 1), ("public_size", 0), ("limit", 1)):
            number = getattr(self, name)
            if number is not None and number < least:
                raise DataError(f"{name} = {number}: give at least {least}")
        for name in ("public_users", "global_test_share", "global_test_users"):
            if not 0 <= getattr(self, name) < 1:
                raise DataError(f"{name} = {getattr(self, name):g}: a share is from 0 to below 1")
        for shares in choices_of(self.shares):
            if fault := shares_fault(shares):
                raise DataError(fault)
        if self.public_users and (self.public_size or self.public_source is not None):
            raise DataError(
                "the public set is either a number of samples, of this data set or another, or whole users "
                "of this one: give one of the two",
                setting="public_users",
            )
        if self.global_test_share and self.global_test_users:
            raise DataError(
                "the global test set is either a share of samples or of users: give one of the two"
            )

    @property
    def takes_users(self) -> bool:
        """Whether whole users are held out."""
        return self.public_users > 0 or self.global_test_users > 0
