"""Each kind of record in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedsim
from fedsim.report.event_words import _WORDS, event_words, instant

PART = {"client": 3, "dispatch": 0}


def test_every_kind_of_record_has_words() -> None:
    sources = (file.read_text() for file in sorted(Path(fedsim.__file__).parent.rglob("*.py")))
    kinds = {kind for source in sources for kind in re.findall(r'RecordKind\(\s*"(\w+)"', source)}
    assert kinds == set(_WORDS)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            {"kind": "dispatch", **PART, "round": 1, "exchange": "train", "turn": 0},
            "the server asks client 3, dispatch 0: exchange train of round 1",
        ),
        (
            {"kind": "transfer_start", **PART, "up": False, "message": "model", "bytes": 1234},
            "the server sends model to client 3, dispatch 0: 1,234 B",
        ),
        (
            {"kind": "transfer_start", **PART, "up": True, "message": "update", "bytes": 12},
            "client 3, dispatch 0, sends update: 12 B",
        ),
        (
            {"kind": "transfer_end", **PART, "up": True, "outcome": "delivered", "cause": ""},
            "the frame of the reply of dispatch 0 to client 3 has arrived",
        ),
        (
            {"kind": "transfer_copy", **PART, "up": False, "outcome": "lost", "cause": "left"},
            "once more: the frame of the request of dispatch 0 to client 3 is lost: left",
        ),
        (
            {"kind": "job_start", **PART, "job": "fit", "flops": 2.5e6, "duration_s": 0.25},
            "client 3, dispatch 0, begins job fit: 2.5e+06 operations, 0.25 s",
        ),
        (
            {"kind": "job_end", "client": -1, "dispatch": -1, "job": "predict", "outcome": "done"},
            "the server ends job predict",
        ),
        (
            {"kind": "job_end", **PART, "job": "fit", "outcome": "cancelled"},
            "client 3, dispatch 0, ends job fit: cancelled",
        ),
        (
            {"kind": "merge", "round": 2, "exchange": "train", "version": 5, "clients": [*range(10)]},
            "the server merges 10 replies of clients 0, 1, 2, 3, 4, 5, 6, 7 and 2 more: "
            "exchange train of round 2, version 5",
        ),
        (
            {"kind": "merge", "round": 2, "exchange": "train", "version": 5, "clients": [4]},
            "the server merges 1 reply of client 4: exchange train of round 2, version 5",
        ),
        (
            {"kind": "evaluation", "round": 1, "clients": 20, "personal_mean": 0.5, "global": None},
            "evaluation of 20 clients after round 1: accuracy mean over clients 0.5000",
        ),
        (
            {"kind": "evaluation", "round": 1, "clients": 20, "personal_mean": None, "global": None},
            "evaluation of 20 clients after round 1",
        ),
        ({"kind": "drop", **PART, "cause": "timeout"}, "dispatch 0 to client 3 is dropped: timeout"),
        ({"kind": "leave", "client": 3, "policy": "resume"}, "client 3 leaves; its work will resume"),
        (
            {"kind": "spent", **PART, "download_ns": 1, "compute_ns": 10**9, "upload_ns": 0},
            "dispatch 0 to client 3 took 0.000000001 s to download, 1.000000000 s to compute, "
            "0.000000000 s to upload",
        ),
        ({"kind": "later", "at_ns": 7, "fields": [1, 2], "x": None}, "later: fields [1, 2], x None"),
    ],
)
def test_words(record: dict[str, object], words: str) -> None:
    assert event_words(record) == words


def test_instants_are_told_to_the_nanosecond() -> None:
    assert instant(1_250_000_001) == "1.250000001 s"
