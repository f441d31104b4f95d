"""When each dispatch of a run was in which phase, found by playing its trace to the table of dispatches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsim.report.cost_breakdown import Columns
from fedsim.report.run_trace import replay
from fedsim.runtime.records.dispatch_phases import PLACES

PHASE_WORDS = np.array(sorted(PLACES, key=PLACES.__getitem__), object)
"""The phases in words, ``[5]``, by the number that spans have."""


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
