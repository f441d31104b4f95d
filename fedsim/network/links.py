"""The links of a fleet as arrays: a star with the server in the middle."""

from dataclasses import dataclass

from fedsim.network.traces import Traces
from fedsim.params import Array


@dataclass(frozen=True, slots=True)
class Links:
    """Capacities and latencies of a star.

    Attributes:
        up_bps: Uplink of each client, bit/s, ``[K]``.
        down_bps: Downlink of each client, bit/s, ``[K]``.
        latency_s: One-way latency between each client and the server's door, s, ``[K]``.
        server_up_bps: The server's egress, bit/s.
        server_down_bps: The server's ingress, bit/s.
        server_latency_s: One-way latency inside the server's door, s.
        up_traces: What uplinks follow over time, instead of their constant rates; None where none does.
        down_traces: What downlinks follow.
    """

    up_bps: Array
    down_bps: Array
    latency_s: Array
    server_up_bps: float
    server_down_bps: float
    server_latency_s: float
    up_traces: Traces | None = None
    down_traces: Traces | None = None

    def egress_bps(self, address: int) -> float:
        """Return the capacity out of a party (``-1`` is the server), bit/s."""
        return self.server_up_bps if address < 0 else float(self.up_bps[address])

    def ingress_bps(self, address: int) -> float:
        """Return the capacity into a party, bit/s."""
        return self.server_down_bps if address < 0 else float(self.down_bps[address])

    def between_s(self, sender: int, receiver: int) -> float:
        """Return the one-way latency from one party to another, s."""
        return self._to_middle_s(sender) + self._to_middle_s(receiver)

    def _to_middle_s(self, address: int) -> float:
        return self.server_latency_s if address < 0 else float(self.latency_s[address])
