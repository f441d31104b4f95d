"""Carrying messages between server and clients, and the ledger of every byte."""

from fedsim.bus.base import Delivery, Endpoint, Header, Log, Presence
from fedsim.bus.ledger import Ledger, Outcome, Totals
from fedsim.bus.memory import MemoryBus

__all__ = ["Delivery", "Endpoint", "Header", "Ledger", "Log", "MemoryBus", "Outcome", "Presence", "Totals"]
