"""Devices and links, found from a run over sockets: ``fedsim calibrate``.

A transfer takes a latency and its bytes by a rate; the jobs of a dispatch take a fixed overhead each and
their operations by a speed. Both are lines, fitted to every other round with relative errors; the other
rounds are predicted. Where all frames are about as long, or all jobs about as large, nobody can tell the two
parts of a line apart: then the latency or overhead is taken as 0, and the table says so.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import OutputError
from fedsim.network.overhead import CHUNK_BYTES
from fedsim.params import Array
from fedsim.quoting import MAX_SHOWN, shortened
from fedsim.report.cost_breakdown import Columns
from fedsim.report.number_format import NOTHING, duration
from fedsim.report.read_parquet import read_columns
from fedsim.report.read_results import read_provenance, read_scenario
from fedsim.report.run_trace import check_is_run, replay
from fedsim.report.summary import read_summary
from fedsim.report.text_table import TextTable
from fedsim.units import format_quantity, parse

MIN_POINTS = 4
"""Dispatches of which two numbers are found; of fewer, the sums alone."""
APART = 1.5
"""Sizes are told apart whose largest is so many times the smallest."""
OUTLIER = 4.0
"""Times are left out whose error is so many times the median error: another transfer was on the same link."""
_PARTS = ("download", "upload", "compute")
_PREFIX_AND_UNIT = ("num_", ""), ("size_", ""), ("", "_s")
_NEEDED = ("client", "dispatch", "round", "outcome", "label", *(f"{part}_s" for part in (*_PARTS, "waiting")))


@dataclass(frozen=True, slots=True)
class LineFit:
    """Seconds as a fixed part and a part that grows with a size.

    Attributes:
        fixed_s: The fixed part of one transfer, or of one job, s.
        per_second: What passes in a second: bits or operations.
        is_apart: Whether sizes differ enough to tell both parts apart.
        sigma: Standard deviation of the logarithm of real by fitted times.
    """

    fixed_s: float
    per_second: float
    is_apart: bool
    sigma: float

    def seconds(self, counts: Array, sizes: Array) -> Array:
        """Return how long transfers or jobs take, given how many they are and their sizes in all."""
        seconds: Array = (sizes > 0) * (counts * self.fixed_s + sizes / self.per_second)
        return seconds


@dataclass(frozen=True, eq=False)
class DeviceFit:
    """One client, or those of one label.

    Attributes:
        name: The label, or the client's number.
        num_clients: How many clients.
        down: Of downloads.
        up: Of uploads.
        jobs: Of jobs.
        errors: Relative errors of the predicted times of the other rounds' dispatches, ``[dispatches]``.
        memory_bytes: As the run's scenario says; nobody measures it.
    """

    name: str
    num_clients: int
    down: LineFit
    up: LineFit
    jobs: LineFit
    errors: Array
    memory_bytes: float

    @property
    def latency_s(self) -> float:
        """The one-way latency: the mean of both directions."""
        return (self.down.fixed_s + self.up.fixed_s) / 2


def fit_line(counts: Array, sizes: Array, seconds: Array) -> LineFit:
    """Fit a line with relative errors, twice: the second time without outliers.

    Args:
        counts: Transfers or jobs of each dispatch, ``[n]``.
        sizes: Bits or operations of each, ``[n]``.
        seconds: How long they took, ``[n]``.

    Returns:
        The fit; of no dispatches, one whose rate is infinite.
    """
    if not len(sizes):
        return LineFit(0.0, np.inf, False, 0.0)
    each = sizes / counts
    is_apart = len(sizes) >= MIN_POINTS and bool(each.max() >= APART * each.min())
    kept = np.ones(len(sizes), bool)
    for _ in range(2):
        of = np.stack([counts, sizes], 1)[kept] / seconds[kept, None]
        if is_apart:
            scale = of.mean(axis=0)
            solved, *_ = np.linalg.lstsq(of / scale, np.ones(len(of)), rcond=None)
            fixed_s, per_unit = solved / scale
        else:
            fixed_s, per_unit = 0.0, 0.0
        if not is_apart or min(fixed_s, per_unit) <= 0:  # no fixed time can be seen
            per_unit, fixed_s = float(np.median(seconds[kept] / sizes[kept])), 0.0
        fitted = counts * fixed_s + sizes * per_unit
        errors = np.abs(seconds / fitted - 1)
        kept = errors <= OUTLIER * max(float(np.median(errors)), 1e-3)
    sigma = float(np.std(np.log(seconds[kept] / fitted[kept])))
    return LineFit(float(fixed_s), 1 / float(per_unit), is_apart, sigma)


def calibrate(
    folder: Path, by: str = "label", tell: Callable[[str], object] = lambda line: None
) -> list[DeviceFit]:
    """Return what the run of a folder says of its devices and links; an OutputError if it cannot say it.

    Args:
        folder: Of a run over sockets.
        by: ``label`` or ``client``.
        tell: Told which devices are left out, since they have too few replies.
    """
    check_is_run(folder)
    if read_provenance(folder)["bus"] == "memory":
        raise OutputError(
            f"{folder} is a simulation, whose times are those of its scenario: give the folder of a run over "
            "sockets, such as one of 'fedsim serve'"
        )
    work = _work(folder)
    rows = _rows(folder, work)
    rounds = np.unique(rows["round"])
    if len(rounds) < 2:
        raise OutputError(
            f"{folder} has replies of {len(rounds)} round, and one half of the rounds predicts the other: "
            "give a run of several rounds"
        )
    clients = read_columns(folder / "clients.parquet", ("client", "label", "memory_bytes"))
    chosen = rows["label"] if by == "label" else rows["client"]
    is_fitted = np.isin(rows["round"], rounds[::2])
    found = []
    for name in dict.fromkeys(clients[by].tolist()):
        of, of_clients = chosen == name, clients[by] == name
        before = {key: column[of & is_fitted] for key, column in rows.items()}
        after = {key: column[of & ~is_fitted] for key, column in rows.items()}
        if len(before["round"]) and len(after["round"]):
            found.append(_device(str(name), before, after, clients["memory_bytes"][of_clients]))
    names = {one.name for one in found}
    if left_out := [name for name in dict.fromkeys(map(str, clients[by].tolist())) if name not in names]:
        tell(f"left out, since they have too few replies: {shortened(', '.join(left_out), MAX_SHOWN)}")
    if not found:
        raise OutputError(f"{folder}: no device has replies in both halves of the rounds: give a longer run")
    return found


def _device(name: str, before: Columns, after: Columns, memory_bytes: Array) -> DeviceFit:
    fits = dict[str, LineFit]()
    for part in _PARTS:
        known = before[f"size_{part}"] > 0
        fits[part] = fit_line(*(before[f"{prefix}{part}{unit}"][known] for prefix, unit in _PREFIX_AND_UNIT))
    each = [fit.seconds(after[f"num_{part}"], after[f"size_{part}"]) for part, fit in fits.items()]
    real = [after[f"{part}_s"] * (after[f"size_{part}"] > 0) for part in _PARTS]
    errors: Array = np.sum(real, axis=0) / np.sum(each, axis=0) - 1
    down, up, jobs = fits.values()
    return DeviceFit(name, len(memory_bytes), down, up, jobs, errors, float(np.median(memory_bytes)))


def _work(folder: Path) -> Mapping[str, Counter[tuple[int, int]]]:
    """Return by client and dispatch how many frames and jobs there were, and their sizes."""
    found = {f"{what}_{part}": Counter[tuple[int, int]]() for what in ("num", "size") for part in _PARTS}

    def sent(at_ns: int, client: int, dispatch: int, up: bool, *values: Any) -> None:
        part, (_, num_bytes, _, _, overhead) = "upload" if up else "download", values
        found[f"num_{part}"][client, dispatch] += 1
        found[f"size_{part}"][client, dispatch] += 8 * (num_bytes + overhead)

    def worked(at_ns: int, client: int, dispatch: int, num_jobs: int, flops: float) -> None:
        found["num_compute"][client, dispatch] += num_jobs
        found["size_compute"][client, dispatch] += flops  # type: ignore[assignment]

    def began(at_ns: int, client: int, dispatch: int, name: str, flops: float, duration_s: float) -> None:
        worked(at_ns, client, dispatch, 1, flops)

    replay(folder, {"transfer_start": sent, "worked": worked, "job_start": began})
    return found


def _rows(folder: Path, work: Mapping[str, Counter[tuple[int, int]]]) -> Columns:
    """Return the dispatches with a reply that have frames and jobs, with their times and sizes."""
    columns = dict(read_columns(folder / "dispatches.parquet", _NEEDED))
    is_emulated = read_summary(folder).get("emulation") is not None
    if is_emulated:  # the host's own time belongs to that of its jobs
        columns["compute_s"] = columns["compute_s"] + columns["waiting_s"]
    keys = list(zip(columns["client"].tolist(), columns["dispatch"].tolist(), strict=True))
    for name, counts in work.items():
        columns[name] = np.array([counts[key] for key in keys], float)
    if not is_emulated:  # the server's clock sees an upload from the end of its first message on
        columns["size_upload"] = np.maximum(columns["size_upload"] - 8 * CHUNK_BYTES, 0)
    whole = np.isin(columns["outcome"].astype(str), ("merged", "rejected"))
    for part in _PARTS:
        is_timed = columns[f"{part}_s"] > 0
        columns[f"size_{part}"] = columns[f"size_{part}"] * is_timed
        if part != "upload":
            whole &= is_timed & (columns[f"size_{part}"] > 0)
    if not whole.any():
        raise OutputError(
            f"{folder} has no dispatch with a download and a job whose times are known: give a run whose "
            "clients are sent something, work and reply"
        )
    return {name: column[whole] for name, column in columns.items()}


def server_latency_s(folder: Path) -> float:
    """Return the latency at the server's own door, which is no client's, s."""
    value = read_scenario(folder)["server"].get("latency", 0.0)
    return parse(value, "time") if isinstance(value, str) else float(value)


def table(found: Sequence[DeviceFit]) -> TextTable:
    """Return what was found."""

    def part(fit: LineFit) -> str:
        return duration(fit.fixed_s) if fit.is_apart else NOTHING

    def rate(fit: LineFit) -> str:
        return format_quantity(fit.per_second, "bit rate") if np.isfinite(fit.per_second) else NOTHING

    notes = [
        "error: of the predicted time of dispatches in rounds that were not used, median and 95th percentile"
    ]
    if any(not fit.is_apart for one in found for fit in (one.down, one.up, one.jobs)):
        notes.append(
            f"{NOTHING}: sizes are too much alike to tell a fixed time from a rate, which stands for both; "
            "run the algorithm fedsim.planning.probe.Probe to tell them apart"
        )
    columns = {
        "device": lambda one: one.name,
        "clients": lambda one: str(one.num_clients),
        "speed": lambda one: format_quantity(one.jobs.per_second, "compute"),
        "overhead\nof a job": lambda one: part(one.jobs),
        "down": lambda one: rate(one.down),
        "up": lambda one: rate(one.up),
        "latency\ndown": lambda one: part(one.down),
        "latency\nup": lambda one: part(one.up),
        "variation": lambda one: f"{one.jobs.sigma:.3f}",
        "error\nmedian": lambda one: f"{100 * float(np.median(np.abs(one.errors))):.1f} %",
        "error\n95th": lambda one: f"{100 * float(np.quantile(np.abs(one.errors), 0.95)):.1f} %",
    }
    return TextTable.of(found, columns, title="devices and links", notes=notes)


def fleet_csv(found: Sequence[DeviceFit], door_s: float, num_clients: int | None = None) -> str:
    """Return a fleet file (:mod:`fedsim.fleet.device_table`).

    Args:
        found: The devices.
        door_s: The latency at the server's door, which is taken off, s.
        num_clients: Each row is one device, and there have to be so many; None: devices are drawn from rows.
    """
    if num_clients is not None and len(found) < num_clients:
        raise OutputError(
            f"{num_clients - len(found)} of {num_clients} clients have too few replies, and a fleet file by "
            "client has a row for each: give a longer run, or leave out --by client"
        )
    shared = ["share"] if num_clients is None else []
    quantities = "speed_gflops", "memory_gb", "up_mbps", "down_mbps"
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["label", *shared, *quantities, "latency_ms", "overhead_s", "variation"])
    for one in found:
        # Of an uplink that nobody could time, the other direction is the best guess.
        up_bps = one.up.per_second if np.isfinite(one.up.per_second) else one.down.per_second
        values = [one.jobs.per_second / 1e9, one.memory_bytes / 1e9, up_bps / 1e6]
        values += [one.down.per_second / 1e6, 1e3 * max(0.0, one.latency_s - door_s), one.jobs.fixed_s]
        shares = [one.num_clients] * len(shared)
        writer.writerow([one.name, *shares, *(f"{value:.6g}" for value in (*values, one.jobs.sigma))])
    return text.getvalue()
