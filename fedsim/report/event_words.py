"""Events of a trace in words, for people who look for the one that matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedsim.quoting import shortened
from fedsim.report.number_format import several
from fedsim.wire import SERVER

_MOST_NAMED = 8
"""Clients that are named at most."""


def event_words(record: Mapping[str, Any]) -> str:
    """Return what a record of :func:`fedsim.clock.read_trace` tells, without its instant."""
    words = _WORDS.get(record["kind"])
    if words is not None:
        return words(record)
    values = ", ".join(f"{name} {value}" for name, value in record.items() if name not in ("kind", "at_ns"))
    return shortened(f"{record['kind']}: {values}")


def instant(at_ns: int) -> str:
    """Return an instant to the nanosecond, such as ``1.250000000 s``."""
    return f"{at_ns // 10**9}.{at_ns % 10**9:09} s"


def _who(record: Mapping[str, Any]) -> str:
    if record["client"] == SERVER:
        return "the server"
    return f"client {record['client']}, dispatch {record['dispatch']},"


def _whose(record: Mapping[str, Any]) -> str:
    return f"dispatch {record['dispatch']} to client {record['client']}"


def _frame(record: Mapping[str, Any]) -> str:
    way = "of the reply" if record["up"] else "of the request"
    return f"the frame {way} of {_whose(record)}"


def _dispatch(record: Mapping[str, Any]) -> str:
    return f"the server asks client {record['client']}, dispatch {record['dispatch']}: {_place(record)}"


def _place(record: Mapping[str, Any]) -> str:
    return f"exchange {record['exchange']} of round {record['round']}"


def _sending(record: Mapping[str, Any]) -> str:
    who = _who(record) if record["up"] else "the server"
    to = "" if record["up"] else f" to client {record['client']}, dispatch {record['dispatch']}"
    return f"{who} sends {record['message']}{to}: {record['bytes']:,} B"


def _sent(record: Mapping[str, Any]) -> str:
    if record["outcome"] == "delivered":
        return f"{_frame(record)} has arrived"
    cause = f": {shortened(record['cause'])}" if record["cause"] else ""
    return f"{_frame(record)} is {record['outcome'].replace('_', ' ')}{cause}"


def _job_began(record: Mapping[str, Any]) -> str:
    costs = f"{record['flops']:.3g} operations, {record['duration_s']:.6g} s"
    return f"{_who(record)} begins job {record['job']}: {costs}"


def _job_ended(record: Mapping[str, Any]) -> str:
    outcome = "" if record["outcome"] == "done" else f": {record['outcome']}"
    return f"{_who(record)} ends job {record['job']}{outcome}"


def _merge(record: Mapping[str, Any]) -> str:
    clients: Sequence[int] = record["clients"]
    named = ", ".join(map(str, clients[:_MOST_NAMED]))
    more = f" and {len(clients) - _MOST_NAMED} more" if len(clients) > _MOST_NAMED else ""
    whose = f"1 reply of client {named}" if len(clients) == 1 else f"{len(clients)} replies"
    if len(clients) > 1:
        whose += f" of clients {named}{more}"
    return f"the server merges {whose}: {_place(record)}, version {record['version']}"


def _evaluation(record: Mapping[str, Any]) -> str:
    measured = {"mean over clients": record["personal_mean"], "global model": record["global"]}
    said = ", ".join(f"{name} {value:.4f}" for name, value in measured.items() if value is not None)
    clients = several(record["clients"], "client")
    accuracy = f": accuracy {said}" if said else ""
    return f"evaluation of {clients} after round {record['round']}{accuracy}"


_WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "dispatch": _dispatch,
    "transfer_start": _sending,
    "transfer_end": _sent,
    "transfer_copy": lambda record: f"once more: {_sent(record)}",
    "job_start": _job_began,
    "job_end": _job_ended,
    "merge": _merge,
    "reject": lambda record: f"the reply to {_whose(record)} is rejected: {record['reason']}",
    "drop": lambda record: f"{_whose(record)} is dropped: {record['cause']}",
    "late": lambda record: f"the reply to {_whose(record)} comes late",
    "leave": lambda record: f"client {record['client']} leaves; its work will {record['policy']}",
    "return": lambda record: f"client {record['client']} is back",
    "abandon": lambda record: f"client {record['client']} gives up {_whose(record)}: {record['cause']}",
    "evaluation": _evaluation,
    "round_end": lambda record: (
        f"round {record['round']} ends: {record['asked']} asked, {record['merged']} merged"
    ),
    "stop": lambda record: f"a budget ends the rounds: {record['budget']}",
    "spent": lambda record: (
        f"{_whose(record)} took {instant(record['download_ns'])} to download, "
        f"{instant(record['compute_ns'])} to compute, {instant(record['upload_ns'])} to upload"
    ),
}
