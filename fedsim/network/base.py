"""What carries a parcel from one party to another, and the contract that wrappers share.

A carrier is told to carry a parcel and reports what becomes of it: the last byte has left, a copy has arrived,
it was lost. A fault (loss, delay, duplication, corruption, partition) is a carrier around a carrier with the
same signature: it may hold a parcel back, replace its payload, or report what it likes. All of it are callbacks:
this is the hottest path of a run, and no task is needed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fedsim.config import Config
from fedsim.network.links import Links
from fedsim.plugins import Plugin


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something to be carried.

    Attributes:
        sender: Address; ``-1`` is the server, clients count from 0.
        receiver: Address.
        num_bytes: Length on the link.
        payload: What arrives; the network does not look inside.
    """

    sender: int
    receiver: int
    num_bytes: int
    payload: Any


class Listener(Protocol):
    """Hears what becomes of one parcel."""

    def left(self) -> None:
        """The last byte has left the sender; called at most once."""

    def arrived(self, parcel: Parcel) -> None:
        """A copy has arrived whole; called once for each copy."""

    def lost(self, cause: str) -> None:
        """The parcel will not arrive."""


class Passage(Protocol):
    """A transfer under way."""

    def cancel(self) -> None:
        """Stop it: nothing more is heard of it, and its links are free."""


class Carrier(Protocol):
    """Carries parcels; made by a network model, or wrapped around another carrier."""

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer now; the listener hears of it at later instants, or later in this one."""


C = TypeVar("C", bound=Config)


class NetworkPlugin(Plugin[C]):
    """A network model: turns the fleet's links into a carrier."""

    def carrier(self, links: Links) -> Carrier:
        """Return a carrier over these links for one run."""
        raise NotImplementedError
