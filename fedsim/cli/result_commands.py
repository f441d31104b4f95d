"""The commands that show results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsim.cli.options import late, number_option, path_option, read_by, set_option
from fedsim.errors import UserError


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@path_option(
    "--out",
    "FILE",
    "The file to write.  [default: report.html in the folder; of a run, a file beside its folder]",
)
@path_option(
    "--figures",
    "DIR",
    "Also write each figure into this folder, as SVG, PNG and PDF, and its data as CSV. (Needs the extra "
    "figures.)",
)
@click.option(
    "--rounds",
    metavar="A:B",
    callback=read_by("cli.values:rounds"),
    help="Of a run: show client by client what happened from round A to round B, or in round A alone.  "
    "[default: the first 100 rounds, or fewer where much happens]",
)
@click.option("--force", is_flag=True, help="Replace files of figures, and one that is no report of fedsim.")
def report(**values: Any) -> None:
    """Show a run, a comparison or a study in one HTML file.

    FOLDER is that of the results. The file has the answer, figures, tables and how it was done. It needs no
    network and no other file: a browser opens it, and it can be sent to others.
    """
    late("cli.results:report")(**values)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@path_option(
    "--out", "FILE", "Where to write it.  [default: beside the run's folder, with .pftrace at its end]"
)
@number_option("--clients", "ShownClients", "Show at most so many clients.  [default: 60]", "N")
def timeline(**values: Any) -> None:
    """Write the timeline of a run, to look at in Perfetto.

    RUN is the folder of its results. The file opens at https://ui.perfetto.dev, which reads it in the browser
    and sends it nowhere. It shows each client's dispatches by phase, the frames between clients and server,
    rounds and merges, and how the server's link was used. Of large fleets it shows the slowest, the median
    and the fastest clients.
    """
    late("cli.results:timeline")(**values)


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@set_option("PATH=VALUE", "Replace a power, or what energy costs, such as --set energy.pue=1.2")
def energy(**values: Any) -> None:
    """Estimate the energy of a run that has been done.

    RUN is the folder of its results. What devices have drawn follows from their powers and from the phases of
    the run's dispatches, so no run has to be repeated for other powers. The table is by label of devices.
    """
    late("cli.results:energy")(**values)


@click.command()
@click.argument("place", metavar="RUN|SCENARIO", type=click.Path(path_type=Path))
@click.option(
    "--by",
    type=click.Choice(["label", "client"]),
    help="Of a run, find a device for each label, or for each client.  [default: label]",
)
@click.option("--host", is_flag=True, help="Time the models of a scenario on this machine.")
@click.option(
    "--rate",
    "rate_bps",
    metavar="RATE",
    callback=read_by("units:parse", "bit rate", positive=True),
    help="With --host, the link's rate in the fleet file.  [default: that of a loopback, measured]",
)
@click.option(
    "--latency",
    "latency_s",
    metavar="DURATION",
    callback=read_by("units:parse", "time"),
    help="With --host, its latency, likewise.",
)
@path_option("--out", "FILE", "Also write a fleet file, CSV, to simulate with.")
@click.option("--force", is_flag=True, help="Replace a file.")
def calibrate(
    place: Path, by: str | None, host: bool, rate_bps: float | None, latency_s: float | None, **values: Any
) -> None:
    """Find devices and links from a real run, or time this machine.

    RUN is the folder of a run over sockets. The speed of devices, a fixed overhead of each job, the rates of
    links and their latency are fitted to every other round. The other rounds are predicted, and the errors
    shown. Frames and jobs of several sizes are needed to find all of them: the algorithm
    fedsim.planning.probe.Probe sends such.

    With --host, training steps of a SCENARIO's models are timed on this machine, by kind of layer and size of
    batches, and a loopback.
    """
    if host:
        if by is not None:
            raise UserError("--by is for runs: leave it out, or leave out --host")
        link = {"rate_bps": rate_bps, "latency_s": latency_s}
        late("cli.results:calibrate_host")(scenario_file=place, **link, **values)
    elif rate_bps is not None or latency_s is not None:
        raise UserError("--rate and --latency are for --host: leave them out, or give --host and a scenario")
    else:
        late("cli.results:calibrate")(folder=place, by=by or "label", **values)


@click.command()
@click.argument("first", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("second", metavar="RUN", type=click.Path(path_type=Path))
def diff(**values: Any) -> None:
    """Find the first event at which two runs part.

    Shows what differs in their settings, versions and hosts, the last events that they have in common, and
    the first that differs. The exit status is 0 if both have the same events and models, 1 if they differ.
    """
    late("cli.results:diff")(**values)


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--to",
    required=True,
    metavar="TRACKER",
    shell_complete=late("cli.completion:tracker"),
    help="The tracker; 'fedsim list trackers' shows which there are.",
)
@path_option(
    "--out", "DIR", "Folder to write into.  [default: one called like the tracker, beside the run's]"
)
@set_option("KEY=VALUE", "Set a parameter of the tracker, such as --set uri=http://localhost:5000", "params")
def track(**values: Any) -> None:
    """Show a run, a comparison or a study in a tracker.

    FOLDER is that of the results. The tracker is told what their tables say of each round, by round, by
    simulated time and by bytes. 'fedsim run --track' does the same while a run goes on.
    """
    late("cli.results:track")(**values)
