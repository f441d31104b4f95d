"""Commands on folders of results: ``fedsim report``, ``timeline``, ``energy``, ``diff`` and ``track``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from click.exceptions import Exit

from fedsim.cli.console import note, say, table, terminal
from fedsim.page.write_report import REPORT, is_report, write_report
from fedsim.planning.host_speed import host_csv, host_speeds, host_table, loopback
from fedsim.report.atomic_folder import check_files, write_file
from fedsim.report.calibration import calibrate as find_devices
from fedsim.report.calibration import fleet_csv, server_latency_s
from fedsim.report.calibration import table as calibration_table
from fedsim.report.difference_text import remarks, tables, verdict
from fedsim.report.number_format import duration, several, size
from fedsim.report.run_difference import run_difference
from fedsim.report.run_energy import energy_table, run_energy
from fedsim.report.shown_clients import MAX_CLIENTS
from fedsim.report.summary import read_summary
from fedsim.report.tracking import run_folders
from fedsim.report.tracking import track as track_run
from fedsim.scenario import build, load_scenario
from fedsim.scenario.load import load_tracker
from fedsim.timeline.run_timeline import save_timeline
from fedsim.units import format_quantity

DIFFERENT = 1
"""The exit status of ``fedsim diff`` if runs differ, as that of diff."""


def report(
    folder: Path, out: Path | None, figures: Path | None, rounds: tuple[int, int] | None, force: bool
) -> None:
    """Write the report of a folder of results, and say where it is."""
    file = write_report(folder, out, figures=figures, rounds=rounds, force=force)
    say(f"{file} ({size(file.stat().st_size)})")
    if figures is not None:
        say(f"figures are in {figures}")


def check_report_place(parent: Path, *, force: bool) -> None:
    """Check that the report of a comparison or a study that is still to be done will have its place."""
    check_files([parent / REPORT], force=force or is_report(parent / REPORT))


def note_report(parent: Path) -> None:
    """Write the report of a comparison or a study, and say where it is."""
    note(f"its report, for a browser, is {write_report(parent, force=True)}")


def timeline(folder: Path, out: Path | None, clients: int | None) -> None:
    """Write the timeline of a run, and say how to look at it."""
    file = out or folder.resolve().parent / f"{folder.resolve().name}.pftrace"
    shown = save_timeline(folder, file, most_clients=clients or MAX_CLIENTS)
    for remark in shown.remarks:
        note(f"note: {remark}")
    written = f"{several(shown.num_clients, 'client')}, {size(file.stat().st_size)}"
    note(f"{written}: open it at https://ui.perfetto.dev")
    say(str(file))


def energy(folder: Path, overrides: Sequence[str]) -> None:
    """Print what the devices of a run have drawn."""
    estimate, dispatches = run_energy(folder, overrides)
    table(energy_table(estimate, dispatches["label"].to_numpy(), f"energy of {folder.resolve().name}"))


def calibrate(folder: Path, by: str, out: Path | None, force: bool) -> None:
    """Print what a run says of devices and links, and write a fleet file."""
    if out is not None:
        check_files([out], force=force)
    found = find_devices(folder, by, note)
    table(calibration_table(found))
    if out is not None:
        num_clients = read_summary(folder)["clients"] if by == "client" else None
        write_file(out, fleet_csv(found, server_latency_s(folder), num_clients).encode())
        note_fleet(out)


def calibrate_host(
    scenario_file: Path, rate_bps: float | None, latency_s: float | None, out: Path | None, force: bool
) -> None:
    """Print how fast this machine trains the models of a scenario, and write a fleet file."""
    if out is not None:
        check_files([out], force=force)
    parts = build(load_scenario(scenario_file), str(scenario_file))
    found, size = host_speeds(parts), parts.training.batch_size
    table(host_table(found, size))
    measured_bps, measured_s = asyncio.run(loopback())
    rate_bps, latency_s = rate_bps or measured_bps, measured_s if latency_s is None else latency_s
    say(f"link: {format_quantity(rate_bps, 'bit rate')}, latency {duration(latency_s)}")
    if out is not None:
        memory = float(parts.fleet.server.memory_bytes)
        write_file(out, host_csv(found, size, memory, rate_bps, latency_s).encode())
        note_fleet(out)


def note_fleet(out: Path) -> None:
    """Say what a fleet file is for."""
    note(f'\nthe fleet is in {out}: write file = "{out.name}" in [[fleet]], in place of a device')


def diff(first: Path, second: Path) -> None:
    """Print the first difference of two runs; fail if there is one."""
    difference = run_difference(first, second)
    for grid in (grids := tables(difference)):
        table(grid)
    if grids:
        say()
    for line in verdict(difference, terminal().width):
        say(line)
    for remark in remarks(difference):
        note(f"note: {remark}")
    if not difference.is_none:
        raise Exit(DIFFERENT)


def track(folder: Path, to: str, out: Path | None, params: Sequence[str]) -> None:
    """Write finished runs to a tracker, and say how to look at them."""
    tracker = load_tracker(to, params, folder=out)
    for run_folder in run_folders(folder):
        run = track_run(run_folder, tracker)
        note(f"{to} has {run.name}")
    say(tracker.how_to_look(run))
