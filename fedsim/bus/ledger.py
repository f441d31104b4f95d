"""The ledger: every frame that was put on a link, as one row of columns.

Two currencies (specification 2.3). *Bytes* are the length of each frame, whether or not it arrived.
*Parameters* are the papers' metric: scalars of fields declared ``counted``. Frames of a kind that is marked
as data carry raw samples; their bytes stand apart as ``data`` and are part of neither. What protocols add to
a frame on the link is ``overhead``, apart from all of these. *Plain* bytes are the length that a frame would
have without codecs. A row costs 59 bytes, and 12 more if its frame is coded.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import add, attrgetter, sub
from struct import Struct
from typing import Any, TypeAlias

import numpy as np

from fedsim.bus.base import Header
from fedsim.clock.record_columns import Column
from fedsim.errors import InvariantError
from fedsim.params import Array


class Outcome(IntEnum):
    """What became of a frame; of several copies, the best: a larger number is better."""

    IN_FLIGHT = 0
    LOST = 1
    UNDECODABLE = 2
    DELIVERED = 3


OUTCOME_WORDS = tuple(outcome.name.lower() for outcome in Outcome)
"""Outcomes by number, as tables and traces call them."""

# To ask the class for a member takes longer than to append one.
_IN_FLIGHT, _LOST, _DELIVERED = Outcome.IN_FLIGHT, Outcome.LOST, Outcome.DELIVERED


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
    bytes_plain_up: int = 0
    bytes_plain_down: int = 0

    @property
    def sent_up(self) -> int:
        """Bytes of all frames towards the server, raw samples included."""
        return self.bytes_up + self.data_up

    @property
    def sent_down(self) -> int:
        """The same towards the clients."""
        return self.bytes_down + self.data_down

    def __sub__(self, earlier: Totals) -> Totals:
        """Return what was added since ``earlier``."""
        return Totals(*map(sub, _numbers(self), _numbers(earlier)))

    def __add__(self, other: Totals) -> Totals:
        """Return the sum."""
        return Totals(*map(add, _numbers(self), _numbers(other)))

    def __rmul__(self, times: int) -> Totals:
        """Return what so many of these come to."""
        return Totals(*(times * mine for mine in _numbers(self)))


_numbers = attrgetter(*(field.name for field in fields(Totals)))
"""Gives all sums as a tuple; ``astuple`` would copy them deeply, which takes as long as a frame's row."""


class Numbers(dict[str, int]):
    """Numbers of words, from 0 in the order in which they are first asked for."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


Sent: TypeAlias = tuple[str, int, int, bool, int]
"""What is sent, whoever it is for: kind, bytes, parameters, whether it is data, bytes of overhead."""

_SENT = {
    "sent_ns": "q",
    "bytes": "q",
    "parameters": "q",
    "client": "i",
    "round": "i",
    "dispatch": "i",
    "overhead": "i",
    "kind": "h",
    "exchange": "h",
    "up": "?",
    "data": "?",
}
"""What is known of a frame when it is sent, with its format, which struct and NumPy call the same."""

_SENT_ROW, _SENT_DTYPE = Struct("=" + "".join(_SENT.values())), np.dtype(list(_SENT.items()))
_NEVER = -1  # in place of an instant


class Ledger:
    """Append-only rows, and running totals."""

    def __init__(self) -> None:
        self._sent = array("b")  # rows as bytes: to add one takes one call, and not one for each value
        self._outcome = array("b")
        self._arrivals = array("i")
        self._arrived_ns = array("q")
        self._coded = array("i")  # rows of coded frames, and their length without codecs
        self._plain = array("q")
        self._words = Numbers()
        # frames, bytes, parameters, data bytes, overhead bytes, plain bytes; [down, up]
        self._totals = ([0] * 6, [0] * 6)

    def __len__(self) -> int:
        return len(self._outcome)

    def sent(self, at_ns: int, header: Header, up: bool, what: Sent, plain_bytes: int | None = None) -> int:
        """Enter a frame that is being put on a link at an instant; return its row.

        The header is that of the frame or of its dispatch. ``plain_bytes`` is its length without codecs; None
        where it is not coded.
        """
        row = len(self._outcome)
        self._sent.frombytes(self._sent_row(at_ns, header, up, what))
        if plain_bytes is not None:
            self._enter_plain([row], [plain_bytes])
            if not what[3]:
                self._totals[up][5] += plain_bytes - what[1]
        self._outcome.append(_IN_FLIGHT)
        self._arrivals.append(0)
        self._arrived_ns.append(_NEVER)
        return row

    def delivered(
        self,
        sent_ns: Array,
        arrived_ns: Array,
        headers: Any,
        up: bool,
        what: Sequence[Column],
        plain_bytes: Array | None = None,
    ) -> None:
        """Enter frames that are delivered.

        Args:
            sent_ns: When each was put on its link, int64 ``[frames]``.
            arrived_ns: When each arrived.
            headers: Those of the dispatches, as one with arrays where they differ.
            up: Whether they go to the server.
            what: The values of :data:`Sent` in columns.
            plain_bytes: The length of each without codecs, int64, -1 of those that are not coded; None where
                none is.
        """
        kind, num_bytes, num_parameters, is_data, overhead_bytes = what
        words, count = self._words, len(sent_ns)
        rows = np.empty(count, _SENT_DTYPE)
        rows["sent_ns"], rows["bytes"], rows["parameters"] = sent_ns, num_bytes, num_parameters
        rows["client"], rows["round"], rows["dispatch"] = headers.client, headers.round, headers.dispatch
        rows["overhead"], rows["up"], rows["data"] = overhead_bytes, up, is_data
        rows["kind"] = [words[word] for word in kind] if isinstance(kind, np.ndarray) else words[kind]
        rows["exchange"] = words[headers.exchange]
        self._sent.frombytes(rows.tobytes())
        self._outcome.extend([_DELIVERED] * count)
        self._arrivals.extend([1] * count)
        self._arrived_ns.frombytes(arrived_ns.tobytes())
        if plain_bytes is not None:
            coded = np.flatnonzero(plain_bytes >= 0)
            self._enter_plain((coded + len(self) - count).tolist(), plain_bytes[coded].tolist())
            plain_bytes = np.where(plain_bytes < 0, rows["bytes"], plain_bytes)
        totals = self._totals[up]
        totals[:] = map(add, totals, _sums(rows, plain_bytes))

    def _enter_plain(self, rows: Sequence[int], plain_bytes: Sequence[int]) -> None:
        self._coded.extend(rows)
        self._plain.extend(plain_bytes)

    def _sent_row(self, at_ns: int, header: Header, up: bool, what: Sent) -> bytes:
        """Return the row of a frame, which counts in the totals from now on."""
        kind, num_bytes, num_parameters, is_data, overhead_bytes = what
        words, totals, sender = self._words, self._totals[up], header.sender
        totals[0] += 1
        totals[4] += overhead_bytes
        if is_data:
            totals[3] += num_bytes
        else:
            totals[1] += num_bytes
            totals[2] += num_parameters
            totals[5] += num_bytes
        return _SENT_ROW.pack(
            at_ns,
            num_bytes,
            num_parameters,
            sender if sender >= 0 else header.receiver,
            header.round,
            header.dispatch,
            overhead_bytes,
            words[kind],
            words[header.exchange],
            up,
            is_data,
        )

    def ended(self, at_ns: int, row: int, outcome: Outcome) -> bool:
        """Enter what became of a copy of a frame, and when; say whether it is the frame's first end."""
        former = self._outcome[row]
        if outcome is not _LOST:
            self._arrivals[row] += 1
            if outcome > former:
                self._arrived_ns[row] = at_ns
        if outcome > former:
            self._outcome[row] = outcome
        return former == _IN_FLIGHT

    def totals(self) -> Totals:
        """Return the sums over all frames so far."""
        (fd, bd, pd, dd, od, ld), (fu, bu, pu, du, ou, lu) = self._totals
        return Totals(fu, fd, bu, bd, pu, pd, du, dd, ou, od, lu, ld)

    def outcomes(self) -> dict[str, int]:
        """Return how many frames ended how, by the outcome's name in lower case."""
        counts = np.bincount(np.array(self._outcome, np.int8), minlength=len(Outcome))
        return {word: int(count) for word, count in zip(OUTCOME_WORDS, counts, strict=True)}

    def columns(self) -> dict[str, Array]:
        """Return all rows as columns: one array ``[frames]`` for each name, words for kind and exchange.

        ``arrivals`` counts the copies that arrived, decodable or not. ``arrived_at_s`` is that of the first
        copy with the outcome of the frame; NaN where none arrived.
        """
        words = np.array(list(self._words), dtype=object)
        ends = np.array(OUTCOME_WORDS, dtype=object)
        row, arrived_at_s = self._rows(), np.array(self._arrived_ns, float)
        arrived_at_s[arrived_at_s == _NEVER] = np.nan
        arrived_at_s /= 1e9
        return {
            "round": row["round"].copy(),
            "client": row["client"].astype(np.int64),
            "dispatch": row["dispatch"].copy(),
            "exchange": words[row["exchange"]],
            "kind": words[row["kind"]],
            "up": row["up"].copy(),
            "data": row["data"].copy(),
            "bytes": row["bytes"].copy(),
            "bytes_plain": self._plain_bytes(),
            "parameters": row["parameters"].copy(),
            "overhead": row["overhead"].astype(np.int64),
            "arrivals": np.array(self._arrivals),
            "outcome": ends[np.array(self._outcome)],
            "sent_at_s": row["sent_ns"] / 1e9,
            "arrived_at_s": arrived_at_s,
        }

    def check(self) -> None:
        """Compare the running totals with the rows."""
        row = self._rows()
        way, plain_bytes = row["up"], self._plain_bytes()
        for up in (False, True):
            sums = _sums(row[way == up], plain_bytes[way == up])
            if sums != self._totals[up]:
                way_name = "up" if up else "down"
                raise InvariantError(
                    f"the ledger's rows {way_name} sum to {sums} (frames, bytes, parameters, data, overhead, "
                    f"plain) but its totals say {self._totals[up]}"
                )

    def _plain_bytes(self) -> Array:
        """Return the length of each frame without codecs."""
        plain_bytes: Array = self._rows()["bytes"].copy()
        plain_bytes[np.array(self._coded, np.int64)] = self._plain
        return plain_bytes

    def _rows(self) -> Array:
        """Return what was known of each frame when sent: a view, and while it lives no row can follow."""
        return np.ndarray(len(self), _SENT_DTYPE, self._sent)


def _sums(rows: Array, plain_bytes: Array | None) -> list[int]:
    """Return what frames of one direction add up to: frames, bytes, parameters, data, overhead, plain."""
    is_data, num_bytes = rows["data"], rows["bytes"]
    data = int(num_bytes @ is_data)
    parameters, overhead = int(rows["parameters"] @ ~is_data), int(rows["overhead"].sum(dtype=np.int64))
    payload = int(num_bytes.sum()) - data
    plain = payload if plain_bytes is None else int(plain_bytes @ ~is_data)
    return [len(rows), payload, parameters, data, overhead, plain]
