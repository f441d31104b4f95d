"""The ledger: every frame that was put on a link, as one row of columns.

Two currencies (specification 2.3). *Bytes* are the length of each frame, whether or not it arrived.
*Parameters* are the papers' metric: scalars of fields declared ``counted``. Frames of a kind that is marked
as data carry raw samples; their bytes stand apart as ``data`` and are part of neither. What protocols add to
a frame on the link is ``overhead``, apart from all of these. A row costs 47 bytes.
"""

from __future__ import annotations

from array import array
from dataclasses import astuple, dataclass
from enum import IntEnum

import numpy as np

from fedsim.bus.base import Header
from fedsim.errors import InvariantError
from fedsim.params import Array


class Outcome(IntEnum):
    """What became of a frame; of several copies, the best: a larger number is better."""

    IN_FLIGHT = 0
    LOST = 1
    UNDECODABLE = 2
    DELIVERED = 3


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over frames; ``up`` is towards the server."""

    frames_up: int = 0
    frames_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    parameters_up: int = 0
    parameters_down: int = 0
    data_up: int = 0
    data_down: int = 0
    overhead_up: int = 0
    overhead_down: int = 0

    def __sub__(self, earlier: Totals) -> Totals:
        """Return what was added since ``earlier``."""
        return Totals(*(mine - its for mine, its in zip(astuple(self), astuple(earlier), strict=True)))

    def __add__(self, other: Totals) -> Totals:
        """Return the sum."""
        return Totals(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __rmul__(self, times: int) -> Totals:
        """Return what so many of these come to."""
        return Totals(*(times * mine for mine in astuple(self)))


class Ledger:
    """Append-only columns, and running totals."""

    def __init__(self) -> None:
        self._client = array("q")
        self._up = array("b")
        self._kind = array("h")
        self._exchange = array("h")
        self._round = array("i")
        self._dispatch = array("i")
        self._bytes = array("q")
        self._parameters = array("q")
        self._overhead = array("i")
        self._data = array("b")
        self._outcome = array("b")
        self._arrivals = array("i")
        self._words: dict[str, int] = {}
        # frames, bytes, parameters, data bytes, overhead bytes; [down, up]
        self._totals = ([0, 0, 0, 0, 0], [0, 0, 0, 0, 0])

    def __len__(self) -> int:
        return len(self._client)

    def sent(
        self,
        header: Header,
        kind: str,
        num_bytes: int,
        num_parameters: int,
        is_data: bool,
        overhead_bytes: int = 0,
    ) -> int:
        """Enter a frame that is being put on a link; return its row."""
        up = header.sender >= 0
        row = len(self._client)
        self._client.append(header.client)
        self._up.append(up)
        self._kind.append(self._word(kind))
        self._exchange.append(self._word(header.exchange))
        self._round.append(header.round)
        self._dispatch.append(header.dispatch)
        self._bytes.append(num_bytes)
        self._parameters.append(num_parameters)
        self._overhead.append(overhead_bytes)
        self._data.append(is_data)
        self._outcome.append(Outcome.IN_FLIGHT)
        self._arrivals.append(0)
        totals = self._totals[up]
        totals[0] += 1
        totals[4] += overhead_bytes
        if is_data:
            totals[3] += num_bytes
        else:
            totals[1] += num_bytes
            totals[2] += num_parameters
        return row

    def ended(self, row: int, outcome: Outcome) -> bool:
        """Enter what became of a copy of a frame; say whether it is the frame's first end."""
        first = self._outcome[row] == Outcome.IN_FLIGHT
        if outcome > self._outcome[row]:
            self._outcome[row] = outcome
        if outcome is not Outcome.LOST:
            self._arrivals[row] += 1
        return first

    def totals(self) -> Totals:
        """Return the sums over all frames so far."""
        (fd, bd, pd, dd, od), (fu, bu, pu, du, ou) = self._totals
        return Totals(fu, fd, bu, bd, pu, pd, du, dd, ou, od)

    def outcomes(self) -> dict[str, int]:
        """Return how many frames ended how, by the outcome's name in lower case."""
        counts = np.bincount(np.array(self._outcome, np.int8), minlength=len(Outcome))
        return {outcome.name.lower(): int(counts[outcome]) for outcome in Outcome}

    def columns(self) -> dict[str, Array]:
        """Return all rows as columns: one array ``[frames]`` for each name, words for kind and exchange.

        ``arrivals`` counts the copies that arrived, decodable or not.
        """
        words = np.array(list(self._words), dtype=object)
        ends = np.array([outcome.name.lower() for outcome in Outcome], dtype=object)
        return {
            "round": np.array(self._round),
            "client": np.array(self._client),
            "dispatch": np.array(self._dispatch),
            "exchange": words[np.array(self._exchange)],
            "kind": words[np.array(self._kind)],
            "up": np.array(self._up, dtype=bool),
            "data": np.array(self._data, dtype=bool),
            "bytes": np.array(self._bytes),
            "parameters": np.array(self._parameters),
            "overhead": np.array(self._overhead, dtype=np.int64),
            "arrivals": np.array(self._arrivals),
            "outcome": ends[np.array(self._outcome)],
        }

    def check(self) -> None:
        """Compare the running totals with the rows.

        Raises:
            InvariantError: They differ.
        """
        way, data = np.array(self._up, dtype=bool), np.array(self._data, dtype=bool)
        num_bytes, parameters = np.array(self._bytes), np.array(self._parameters)
        overhead = np.array(self._overhead)
        for up in (False, True):
            models, samples = (way == up) & ~data, (way == up) & data
            sums = [
                int((way == up).sum()),
                int(num_bytes[models].sum()),
                int(parameters[models].sum()),
                int(num_bytes[samples].sum()),
                int(overhead[way == up].sum()),
            ]
            if sums != self._totals[up]:
                way_name = "up" if up else "down"
                raise InvariantError(
                    f"the ledger's rows {way_name} sum to {sums} (frames, bytes, parameters, data, overhead) "
                    f"but its totals say {self._totals[up]}"
                )

    def _word(self, word: str) -> int:
        return self._words.setdefault(word, len(self._words))
