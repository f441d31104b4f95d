"""What a client process says beside an answer, outside its frame: what it took, and notes for the log.

Nothing of it is a part of the run: no ledger counts it, and no hook sees it. It travels in the control part
of the answer, so it is taken as often as the answer is, which is once, and is lost with it. Whoever sends it
may lie: times are held against what the server has seen itself (:mod:`fedsim.bus.http.accounts`), notes are
bounded (:mod:`fedsim.bus.reply_report`; their number here), and what is none is turned away by itself,
without harm to the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedsim.bus.http.control import MOST_NOTES, MOST_SPENT_S
from fedsim.bus.reply_report import MOST_PER_REPLY, Note, Report, checked


def enclosed(report: Report, held_ns: int) -> dict[str, Any]:
    """Return the fields that go with an answer.

    Args:
        report: What is to be said.
        held_ns: From the handing over of the delivery to the answer.
    """
    fields: dict[str, Any] = {
        "s": tuple(min(max(0.0, ns / 1e9), MOST_SPENT_S) for ns in (held_ns, report.compute_ns))
    }
    if report.notes or report.left_out:
        fields["w"] = written(report.notes, report.left_out)
    return fields


def written(notes: Sequence[Note], left_out: int = 0) -> str:
    """Return notes as a text that :func:`read` accepts; what is too much is left out, and counted.

    Args:
        notes: What was noted, as :func:`fedsim.bus.reply_report.in_words` gives it.
        left_out: How many were left out before.
    """
    lines: list[str] = []
    room = MOST_NOTES - 100  # for the last one
    for note in notes[:MOST_PER_REPLY]:
        line = json.dumps(note)
        if len(line) + 2 > room:
            continue  # a shorter one may yet find room
        room -= len(line) + 2
        lines.append(line)
    if left_out := left_out + len(notes) - len(lines):
        lines.append(json.dumps(["warning", "notes left out", {"count": left_out}]))
    return f"[{', '.join(lines)}]"


def read(text: Any) -> list[Note]:
    """Return the notes of a text.

    Raises:
        ValueError: It holds none, or more than is allowed.
    """
    if type(text) is not str or len(text) > MOST_NOTES:
        raise ValueError(f"notes are a text of at most {MOST_NOTES} characters")
    try:
        said = json.loads(text)
    except RecursionError:
        raise ValueError("notes are nested too deeply") from None
    if type(said) is not list or len(said) > MOST_PER_REPLY + 1:
        raise ValueError(f"notes are a list of at most {MOST_PER_REPLY} and the count of the rest")
    return [checked(one) for one in said]
