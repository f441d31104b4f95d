"""Differences of two runs as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from fedsim.network.fault_settings import OF_FRAMES
from fedsim.quoting import shortened
from fedsim.report.number_format import several
from fedsim.report.run_difference import Differences, Parting, Record, RunDifference
from fedsim.report.text_table import TextTable, aligned
from fedsim.units import format_quantity
from fedsim.wire import SERVER

FIRST, SECOND = "first", "second"
_MAX_SHOWN = 28
"""Characters of a value; with two of them and a path, a line has room in 80 columns."""


def tables(difference: RunDifference) -> list[TextTable]:
    """Return tables of differing settings, versions and hosts."""
    shown = {
        "settings that differ": ("setting", difference.settings),
        "versions and hosts that differ": ("what", difference.facts),
    }
    return [_table(title, name, differences) for title, (name, differences) in shown.items() if differences]


def verdict(difference: RunDifference, width: int = 100) -> list[str]:
    """Return the result in lines of at most ``width`` characters, if words allow."""
    first, second = difference.summaries
    if difference.parting is not None:
        return _parting_lines(difference.parting, width)
    events = f"  trace_hash  {first['trace_hash']}"
    if difference.is_none:
        words = "the runs are equal: they have the same events, and end with the same models"
        return [*_wrapped(words, width), events, f"  model_hash  {first['model_hash']}"]
    return [
        *_wrapped("the runs have the same events, but end with other models", width),
        events,
        f"  model_hash  {first['model_hash']} ({FIRST})",
        f"  model_hash  {second['model_hash']} ({SECOND})",
    ]


def remarks(difference: RunDifference) -> list[str]:
    """Return remarks on the differences, one sentence each."""
    parting, notes = difference.parting, []
    if difference.is_none:
        return []
    if parting is not None and parting.first is not None and parting.first["kind"] == "evaluation":
        notes.append("events hold no models: those of the runs have parted before, at the latest in a merge")
    if difference.is_real_time:
        notes.append("over sockets times are real, so no two runs have equal events")
    elif not difference.settings and not difference.facts:
        notes.append(
            "no setting, version or host tells the runs apart, so they should be equal: either a plugin or "
            "data of your own is not the same or does not repeat itself, or this is a bug in fedsim"
        )
    return notes


def _table(title: str, name: str, differences: Differences) -> TextTable:
    rows = [(path, *_cells(*values)) for path, values in differences.items()]
    return TextTable((name, FIRST, SECOND), rows, text_columns=frozenset(range(3)), title=title)


def _cells(first: Any, second: Any) -> tuple[str, str]:
    """Return two values as text; long ones are cut to where they begin to differ."""
    texts = ["not set" if value is None else str(value) for value in (first, second)]
    begin = 0
    if max(map(len, texts)) > _MAX_SHOWN:
        equal = (left == right for left, right in zip(*texts, strict=False))
        begin = max(0, next((place for place, same in enumerate(equal) if not same), 0) - _MAX_SHOWN // 2)
    return _cut(texts[0], begin), _cut(texts[1], begin)


def _cut(value: str, begin: int) -> str:
    rest = f"...{value[begin:]}" if begin else value
    return rest if len(rest) <= _MAX_SHOWN else f"{rest[: _MAX_SHOWN - 3]}..."


def _parting_lines(parting: Parting, width: int) -> list[str]:
    events = several(parting.num_common, "event")
    if parting.before:
        lines = [f"the runs are equal for {events}; the last of them:"]
        for record in parting.before:
            lines += _wrapped(f"  {_line(record)}", width)
        lines.append("then they part:")
    else:
        lines = ["the runs part at their first event:"]
    for name, own in ((FIRST, parting.first), (SECOND, parting.second)):
        lines += _wrapped(f"  {name:6}  {_line(own)}", width)
    if parting.first and parting.second and parting.first["kind"] == parting.second["kind"]:
        apart = {
            name: _cells(value, parting.second.get(name))
            for name, value in parting.first.items()
            if value != parting.second.get(name)
        }
        lines.append("which differ in:")
        lines += aligned([(name, f"{left} and {right}") for name, (left, right) in apart.items()])
    return lines


def _line(record: Record | None) -> str:
    return "no more events" if record is None else f"{instant(record['at_ns'])}  {event_words(record)}"


def _wrapped(line: str, width: int) -> list[str]:
    """Wrap a line with a hanging indent."""
    words = line.rfind("  ") + 2 if "  " in line else 0
    return wrap(line, width, subsequent_indent=" " * words, break_long_words=False, drop_whitespace=True) or [
        line
    ]


_MAX_NAMED = 8
"""Maximum number of clients that are named."""


def event_words(record: Mapping[str, Any]) -> str:
    """Describe a record of :func:`fedsim.clock.read_trace`, without its instant."""
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
    named = ", ".join(map(str, clients[:_MAX_NAMED]))
    more = f" and {len(clients) - _MAX_NAMED} more" if len(clients) > _MAX_NAMED else ""
    whose = f"1 reply of client {named}" if len(clients) == 1 else f"{len(clients)} replies"
    if len(clients) > 1:
        whose += f" of clients {named}{more}"
    return f"the server merges {whose}: {_place(record)}, version {record['version']}"


def _of_edge(record: Mapping[str, Any]) -> str:
    way = "from" if record["up"] else "to"
    return f"the frame {way} edge {record['edge']} in round {record['round']}"


def _evaluation(record: Mapping[str, Any]) -> str:
    measured = {"mean over clients": record["personal_mean"], "global model": record["global"]}
    accuracies = ", ".join(f"{name} {value:.4f}" for name, value in measured.items() if value is not None)
    clients = several(record["clients"], "client")
    accuracy = f": accuracy {accuracies}" if accuracies else ""
    return f"evaluation of {clients} after round {record['round']}{accuracy}"


def _fault(record: Mapping[str, Any]) -> str:
    if record["fault"] in OF_FRAMES:
        return f"{_frame(record)}: {record['fault']}"
    what = "crashes" if record["fault"] == "crash" else "is slow"
    return f"client {record['client']} {what}, at work on dispatch {record['dispatch']}"


_WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "dispatch": _dispatch,
    "transfer_start": _sending,
    "coded": lambda record: f"{_whose(record)}: without codecs the frame has {record['bytes_plain']} bytes",
    "transfer_end": _sent,
    "transfer_copy": lambda record: f"once more: {_sent(record)}",
    "job_start": _job_began,
    "job_end": _job_ended,
    "merge": _merge,
    "edge_start": lambda record: f"{_of_edge(record)} is sent: {record['message']}, {record['bytes']:,} B",
    "edge_end": lambda record: f"{_of_edge(record)} is {record['outcome']}",
    "edge_merge": lambda record: (
        f"edge {record['edge']} averages what {several(len(record['clients']), 'client')} sent: "
        f"{_place(record)}"
    ),
    "reject": lambda record: f"the reply to {_whose(record)} is rejected: {record['reason']}",
    "drop": lambda record: f"{_whose(record)} is dropped: {record['cause']}",
    "late": lambda record: f"the reply to {_whose(record)} comes late",
    "leave": lambda record: f"client {record['client']} leaves; its work will {record['policy']}",
    "return": lambda record: f"client {record['client']} is back",
    "abandon": lambda record: f"client {record['client']} gives up {_whose(record)}: {record['cause']}",
    "retry": lambda record: f"{_frame(record)} will be sent again",
    "fault": _fault,
    "evaluation": _evaluation,
    "round_end": lambda record: (
        f"round {record['round']} ends: {record['asked']} asked, {record['merged']} merged"
    ),
    "battery": lambda record: (
        f"client {record['client']} has {format_quantity(record['level_j'], 'energy')} left after dispatch "
        f"{record['dispatch']}"
    ),
    "stop": lambda record: f"a budget ends the rounds: {record['budget']}",
    "worked": lambda record: (
        f"client {record['client']} did {several(record['jobs'], 'job')} for dispatch {record['dispatch']}"
    ),
    "spent": lambda record: (
        f"{_whose(record)} took {instant(record['download_ns'])} to download, "
        f"{instant(record['compute_ns'])} to compute, {instant(record['upload_ns'])} to upload"
    ),
}
