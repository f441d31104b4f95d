"""Rare events, each from a trace by hand."""

from typing import Any

import pytest

from fedsim.fuzz.rare_events import EVENTS, events_of
from fedsim.fuzz.run_folder import RunFolder

S = 10**9
Row = dict[str, Any]


def at(at_ns: int, kind: str, **values: Any) -> Row:
    return {"kind": kind, "at_ns": at_ns, **values}


def asked(client: int = 0, dispatch: int = 0, at_ns: int = 0) -> Row:
    return at(at_ns, "dispatch", client=client, dispatch=dispatch, round=1, exchange="train", turn=0)


def sent(at_ns: int, *, up: bool = False, client: int = 0, dispatch: int = 0) -> Row:
    frame = {"message": "model", "bytes": 9, "parameters": 1, "data": False, "overhead": 0}
    return at(at_ns, "transfer_start", client=client, dispatch=dispatch, up=up, **frame)


def ended(
    at_ns: int, outcome: str = "delivered", cause: str = "", kind: str = "transfer_end", **of: Any
) -> Row:
    one = {"client": 0, "dispatch": 0, "up": False} | of
    return at(at_ns, kind, **one, outcome=outcome, cause=cause)


def struck(at_ns: int, fault: str, client: int = 0) -> Row:
    return at(at_ns, "fault", client=client, dispatch=0, up=True, fault=fault)


def merged(at_ns: int, version: int, dispatch: int, round: int = 1) -> Row:  # noqa: A002
    replies = {"clients": [0], "dispatches": [dispatch]}
    return at(at_ns, "merge", round=round, exchange="train", version=version, **replies)


def dropped(at_ns: int, cause: str) -> Row:
    return at(at_ns, "drop", client=0, dispatch=0, cause=cause)


def replied(at_ns: int, client: int = 0) -> list[Row]:
    return [sent(at_ns - 1, up=True, client=client), ended(at_ns, up=True, client=client)]


def rejected(reason: str) -> Row:
    return at(1, "reject", client=0, dispatch=0, reason=reason)


PARTITION = {"faults": [{"kind": "partition", "at": "1 s", "every": "2 s", "for": "1 s"}]}
FORGETS = {"faults": [{"kind": "crash", "at": "1 s", "keeps_state": False}]}
BUFFERED = {"participation": {"client_timeout": "5 s", "pacing": {"name": "buffered"}}}

CAME: dict[str, tuple[list[Row], Row]] = {
    "a frame arrived twice": ([asked(), sent(0), ended(1), ended(1, kind="transfer_copy")], {}),
    "a frame arrived with a wrong checksum": ([asked(), struck(1, "corrupt")], {}),
    "a frame was delayed by a fault": ([asked(), struck(1, "delay")], {}),
    "a frame was sent again": ([asked(), at(1, "retry", client=0, dispatch=0, up=False)], {}),
    "a frame was under way when the run ended": ([asked(), sent(0)], {}),
    "a partition began during a transfer": ([asked(), struck(3 * S, "partition")], PARTITION),
    "a device was slow at work": ([asked(), struck(1, "slow")], {}),
    "a client crashed at work": ([asked(), struck(1, "crash")], {}),
    "a client lost its state in a crash": ([asked(), *replied(2), struck(3, "crash")], FORGETS),
    "a battery ran empty at work": (
        [asked(), at(1, "abandon", client=0, dispatch=0, cause="battery empty")],
        {},
    ),
    "a client dropped out": ([asked(), at(1, "abandon", client=0, dispatch=0, cause="dropped out")], {}),
    "a client left during a transfer": ([asked(), sent(0), at(1, "leave", client=0, policy="resume")], {}),
    "a transfer began anew on a return": (
        [asked(), sent(0), ended(1, "lost", cause="restarted")],
        {},
    ),
    "a client had two dispatches at once": ([asked(), asked(dispatch=1, at_ns=1), asked(1, at_ns=9)], {}),
    "a lease ended at the instant at which a frame arrived": (
        [asked(), asked(1), *replied(5 * S, client=1), dropped(5 * S, "timeout")],
        {},
    ),
    "two replies arrived at one instant": ([asked(), asked(1), *replied(2), *replied(2, client=1)], {}),
    "a late reply was ignored": ([asked(), dropped(1, "timeout"), at(2, "late", client=0, dispatch=0)], {}),
    "a reply was merged in a later round": ([asked(), *replied(1), merged(2, 1, 0, round=2)], {}),
    "a reply was stale when it was merged": (
        [asked(), asked(dispatch=1), merged(1, 1, 0), merged(2, 2, 1)],
        {},
    ),
    "a reply of an attacker was merged": (
        [asked(), *replied(1), merged(2, 1, 0)],
        {"clients": [{"client": 0, "attack": "scale"}]},
    ),
    "a robust rule combined several replies": (
        [asked(), asked(1), merged(1, 1, 0) | {"clients": [0, 1], "dispatches": [0, 0]}],
        {"aggregation": {"name": "median"}},
    ),
    "an edge averaged several replies": (
        [
            asked(),
            asked(1),
            at(1, "edge_merge", round=1, exchange="train", edge=0, clients=[0, 1], dispatches=[0, 0]),
        ],
        {},
    ),
    "a frame of an edge was lost with the end of the run": (
        [at(1, "edge_end", edge=0, round=1, up=False, outcome="lost")],
        {},
    ),
    "a reply was rejected": ([asked(), rejected("num_samples")], {}),
    "a merge left the finite range": ([asked(), rejected("the merge leaves the finite range: inf")], {}),
    "a round ended without a reply": ([at(1, "round_end", round=1, asked=1, merged=0)], {}),
    "a round failed, and its replies were discarded": ([asked(), dropped(1, "round failed")], {}),
    "a buffer was part-filled when the run ended": (
        [asked(), *replied(1), dropped(2, "the run ended")],
        BUFFERED,
    ),
    "a budget ended the run": ([at(1, "stop", budget="bytes")], {}),
    "all cohorts took the fast path": ([], {"cohorts": {"asked": 2, "run_beforehand": 2}}),
    "some cohorts took the fast path, and others left it": (
        [],
        {"cohorts": {"asked": 2, "run_beforehand": 1}},
    ),
    "a client without samples was evaluated": ([], {"evaluations": [{"num_samples": 0}]}),
}
"""For each event a trace that has it, and what else the folder says."""

QUIET = [asked(), sent(0), ended(S), *replied(3 * S), merged(3 * S, 1, 0)]
"""A dispatch to which nothing happens."""


def folder(records: list[Row], more: Row) -> RunFolder:
    participation = {"client_timeout": "5 s", "pacing": {"name": "synchronous"}}
    scenario = {"participation": participation} | more
    tables = {
        "evaluations": more.get("evaluations", [{"num_samples": 3}]),
        "clients": more.get("clients", [{"client": 0}]),
    }
    host = {"cohorts": more.get("cohorts", {"asked": 1, "run_beforehand": 0})}
    return RunFolder(records, "", tables, {}, scenario, host, [])


def test_every_event_has_a_trace() -> None:
    assert CAME.keys() == EVENTS.keys()


@pytest.mark.parametrize("words", EVENTS)
def test_an_event_is_seen(words: str) -> None:
    records, more = CAME[words]
    assert words in events_of(folder(records, more))
    assert words not in events_of(folder(QUIET, {}))


@pytest.mark.parametrize(
    ("records", "more", "words"),
    [
        ([asked(), struck(2 * S, "partition")], PARTITION, "a partition began during a transfer"),
        ([asked(), struck(1, "crash"), *replied(2)], FORGETS, "a client lost its state in a crash"),
        ([asked(), *replied(2), struck(3, "crash")], {}, "a client lost its state in a crash"),
        (
            [asked(), sent(0), ended(1), at(1, "leave", client=0, policy="lost")],
            {},
            "a client left during a transfer",
        ),
        ([asked(), dropped(2, "the run ended")], BUFFERED, "a buffer was part-filled when the run ended"),
    ],
)
def test_what_is_nearly_one_is_none(records: list[Row], more: Row, words: str) -> None:
    assert words not in events_of(folder(records, more))
