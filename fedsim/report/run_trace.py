"""Reading the trace of a recorded run, and replaying it into its dispatches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedsim.clock import StoredTrace
from fedsim.clock.event_trace import Listener, stored_hash
from fedsim.errors import OutputError
from fedsim.params import Array
from fedsim.report.atomic_folder import MARK
from fedsim.report.cost_breakdown import Columns
from fedsim.report.number_format import several
from fedsim.report.read_results import read_checked
from fedsim.report.summary import read_summary
from fedsim.runtime.records.dispatch_phases import PLACES
from fedsim.runtime.records.dispatch_table import DispatchTable

TRACE = "trace.msgpack"


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """The dispatches of a run, replayed from its trace.

    ``spans`` is int64 ``[spans, 5]``: row in the table, phase (one of ``PLACES``), begin and end in ns, and 1
    where these are exact, 0 where only the length is known.
    """

    dispatches: DispatchTable
    spans: Array


def check_is_run(folder: Path) -> None:
    """Check that a folder is that of a run."""
    if (folder / MARK).is_file():
        return
    inside = sorted(path.parent.name for path in folder.glob(f"*/{MARK}"))
    if inside:
        raise OutputError(
            f"{folder} holds {several(len(inside), 'run')}: name one of them, such as {folder / inside[0]}"
        )
    raise OutputError(f"{folder} is not the folder of a run: it holds no {MARK}")


@contextmanager
def opened(folder: Path) -> Iterator[BinaryIO]:
    """Open the trace of a run, at its beginning."""
    check_is_run(folder)
    file, wanted = folder / TRACE, read_summary(folder).get("trace_hash")
    if read_checked(file, _hash) != wanted:
        raise OutputError(
            f"{file} is not the trace of this run, whose hash {wanted} its summary gives: these results are "
            "not whole, so do the run again"
        )
    with file.open("rb") as stream:
        yield stream


def replay(folder: Path, listeners: Mapping[str, Listener] | None = None) -> Replayed:
    """Replay the trace of a run into its dispatches."""
    with opened(folder) as file:
        trace = StoredTrace(file)
        dispatches = DispatchTable(trace, keep_spans=True)
        trace.listen(listeners or {})
        trace.play()
    dispatches.finish(round(read_summary(folder)["simulated_s"] * 1e9))
    spans = dispatches.spans
    return Replayed(dispatches, spans[np.argsort(spans[:, 0], kind="stable")])


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return stored_hash(stream)


PHASE_WORDS = np.array(sorted(PLACES, key=PLACES.__getitem__), object)
"""Names of the phases by their number in spans, ``[5]``."""


def read_spans(folder: Path) -> Columns:
    """Return the spans of a run as columns, one array ``[spans]`` for each name.

    A span is a time in which a dispatch was in one phase. Those of a dispatch follow each other without a gap
    from its sending to its end, and sum to its phases in the table of dispatches. They are in the order of
    sending, and within a dispatch in that of time.

    ===================== ==========================================================================
    ``client``            number of the client
    ``dispatch``          number among the dispatches to this client, from 0
    ``round``             round in which it was sent
    ``phase``             ``download``, ``compute``, ``upload``, ``away`` or ``waiting``
    ``began_at_s``        virtual time, s
    ``ended_at_s``        likewise
    ``outcome``           what became of the dispatch: ``merged``, ``dropped``, ``rejected``, ``late``
    ``is_exact``          whether that is when; of most dispatches over sockets it is known only how
                          long each phase lasted, and they are put in their usual order
    ===================== ==========================================================================
    """
    replayed = replay(folder)
    table = replayed.dispatches.columns()
    row, phase, began_ns, ended_ns, is_exact = replayed.spans.T
    return {
        **{name: table[name][row] for name in ("client", "dispatch", "round")},
        "phase": PHASE_WORDS[phase],
        "began_at_s": began_ns / 1e9,
        "ended_at_s": ended_ns / 1e9,
        "outcome": table["outcome"][row],
        "is_exact": is_exact.astype(np.bool_),
    }
