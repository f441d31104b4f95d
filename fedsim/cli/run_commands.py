"""The commands that run something in this process or in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsim.cli.options import (
    algorithm_option,
    emulate_options,
    file_argument,
    late,
    number_option,
    one_run,
    output_of_one,
    output_of_resumed,
    output_of_several,
    path_option,
    profile_option,
    read_by,
    scenario_file,
    scenario_options,
    set_option,
    speed_up_option,
)
from fedsim.errors import UserError

on_option = click.option(
    "--on",
    type=click.Choice(["ray"]),
    help="Spread the runs over a Ray cluster, that of RAY_ADDRESS or of this machine, instead of doing them "
    "here; --jobs then bounds how many it does at once. (Needs the extra ray.)",
)
report_option = click.option(
    "--report", is_flag=True, help="Write report.html too, for a browser, as 'fedsim report' does."
)


@click.command()
@one_run
@click.option(
    "--bus",
    type=click.Choice(["memory", "http"]),
    default="memory",
    show_default=True,
    help="Simulate in this process, or run in real time over sockets between processes of this machine.",
)
@number_option("--processes", "Processes", "Client processes, with --bus http.  [default: 2]", "N")
@emulate_options
@profile_option
@output_of_one
def run(
    bus: str, processes: int | None, profile: bool, emulate: bool, speed_up: float | None, **values: Any
) -> None:
    """Run a scenario, and write a folder with its results."""
    if bus == "http":
        if profile:
            raise UserError(
                "--profile notes the jobs of this process, but over sockets processes of clients do them: "
                "leave out --profile or --bus http"
            )
        late("cli.sockets:run")(processes=processes or 2, emulate=emulate, speed_up=speed_up, **values)
    elif emulate or speed_up is not None:
        raise UserError(
            "--emulate holds client processes to their devices, and without --bus http there are none: give "
            "--bus http too, or leave it out"
        )
    elif processes is not None:
        raise UserError("--processes is for runs over sockets: give --bus http too, or leave it out")
    else:
        late("cli.run:run")(profile=profile, **values)


@click.command()
@scenario_options
@click.option(
    "--algorithms",
    metavar="A,B",
    callback=read_by("cli.values:algorithms"),
    shell_complete=late("cli.completion:algorithms"),
    help="Validate each of these algorithms, and their order by time.  [default: the scenario's]",
)
@number_option("--seed", "Seed", "Use this seed instead of the scenario's.")
@speed_up_option
@click.option(
    "--without-emulation",
    "is_plain",
    is_flag=True,
    help="Compare with a plain run over sockets, whose devices and links are those of this machine.",
)
@number_option("--processes", "Processes", "Client processes.  [default: 2]", "N")
@path_option("--out", "DIR", "Folder of the results.  [default: runs/<name>/validation, or with a number]")
@click.option("--quiet", "-q", is_flag=True, help="Show no progress, only the result.")
def validate(speed_up: float | None, is_plain: bool, **values: Any) -> None:
    """Hold a prediction against a real run.

    The scenario is simulated, and then run over sockets in real time, where each client is held to its
    device, its link and its availability. Shows how far rounds, phases and the order of replies are apart,
    whether bytes and models are equal, and whether algorithms have the same order by time. The exit status is
    0 if predictions agree.
    """
    if is_plain and speed_up is not None:
        raise UserError("--speed-up is for emulations: leave it out, or leave out --without-emulation")
    late("cli.validate:validate")(speed_up=speed_up, is_plain=is_plain, **values)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@set_option("PATH=VALUE", "Replace engine.workers or engine.batching, which change no result")
@output_of_resumed
def resume(**values: Any) -> None:
    """Go on with a run that was interrupted, in its FOLDER.

    The run goes on from its last checkpoint, or from its beginning if it has none, and ends with the results
    that it would have had. ('fedsim run' with the same scenario and place does the same.)
    """
    late("cli.run:resume")(**values)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@number_option("--rounds", "Rounds", "How many rounds the run has in all.", "N", required=True)
@output_of_resumed
def extend(**values: Any) -> None:
    """Give a finished run more rounds, in its FOLDER.

    It ends with the results of a run that had that many rounds from the beginning.
    """
    late("cli.run:extend")(**values)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--at",
    "at_s",
    required=True,
    metavar="TIME",
    callback=read_by("cli.values:seconds"),
    help="When the fork leaves the run, in simulated time, such as '3 h': at the end of the last round that "
    "had ended by then.",
)
@set_option("PATH=VALUE", "Replace a setting from then on, such as --set training.lr=0.01")
@path_option("--out", "DIR", "Folder of the results.  [default: FOLDER-fork, with a number if it is there]")
@click.option("--force", is_flag=True, help="Replace the results of another run.")
@output_of_resumed
def fork(**values: Any) -> None:
    """Continue a copy of a run from an instant on.

    The run in FOLDER stays as it is. Its copy, the fork, can have other settings of training, participation,
    network, codecs, faults and evaluation, another number of rounds and another budget. Other changes are
    refused. The fork's run.json says which run it comes from.
    """
    late("cli.run:fork")(**values)


@click.command()
@scenario_file
@set_option(
    "PATH=V1,V2",
    "Replace a value, or run with each of several, such as --set training.lr=0.1,0.5, in every combination "
    "with others (commas in brackets, braces or quotation marks belong to a value: [8, 16] is one, a list)",
)
@click.option(
    "--algorithms",
    required=True,
    metavar="A,B",
    callback=read_by("cli.values:algorithms"),
    shell_complete=late("cli.completion:algorithms"),
    help="The algorithms to compare, separated by commas.",
)
@click.option(
    "--seeds",
    metavar="0,1",
    callback=read_by("cli.values:seeds"),
    help="Run each algorithm with each of these seeds.  [default: the scenario's]",
)
@click.option(
    "--target",
    "targets",
    metavar="SHARE",
    multiple=True,
    callback=read_by("cli.values:targets"),
    help="Show what each costs until it reaches this accuracy, such as 0.8; may be repeated.",
)
@number_option(
    "--jobs",
    "Processes",
    "Runs at once, in processes of their own.  [default: one, in this process]",
    "N",
)
@on_option
@path_option(
    "--out",
    "DIR",
    "Folder of the run folders.  [default: runs/<name>, with a number if it holds others]",
)
@click.option("--show-params", is_flag=True, help="Show the parameters of each algorithm, side by side.")
@report_option
@output_of_several
def compare(**values: Any) -> None:
    """Run several algorithms, and show side by side what each costs.

    Beside the folders of the runs, comparison.csv and comparison.json hold what the tables show and more, and
    answers.csv and study.parquet what a study's do. Runs that are there already are not done again.

    With several values of a path it is a study with a grid, and leaves the folder that 'fedsim study' does.
    """
    late("cli.study:compare")(**values)


@click.command()
@file_argument("study_file", "FILE", "studies")
@path_option(
    "--out", "DIR", "Folder of the results.  [default: runs/<name>, with a number if it holds others]"
)
@number_option(
    "--jobs", "Processes", "Runs at once.  [default: as many as there are cores and memory for]", "N"
)
@on_option
@report_option
@output_of_several
def study(**values: Any) -> None:
    """Run a study, and show what reaching its targets costs.

    FILE says what is varied: variants of a scenario, a grid of values, seeds. Runs go in processes of their
    own, with --jobs 1 in this one. A run that is there already is not done again, so a study that was stopped
    goes on where it was. Runs that fail are listed at the end.
    """
    late("cli.study:study")(**values)


@click.command()
@file_argument("scenario_file", "[FILE]", "scenarios", required=False)
@click.option(
    "--seeds",
    metavar="A-B",
    callback=read_by("cli.values:seed_range"),
    help="Examine the random scenarios of the seeds from A to B, or of seed A alone.  [default: 0-99]",
)
@number_option("--minutes", "Minutes", "Begin no seed after so much real time.", "M")
@number_option("--workers", "Processes", "Scenarios at once.  [default: as many as there are cores]", "N")
@algorithm_option
@set_option("PATH=VALUE", "Replace a value in every scenario, such as --set participation.pacing=lab.mine")
def fuzz(**values: Any) -> None:
    """Look for faults of fedsim or of plugins in random scenarios.

    Each scenario is run twice: event by event with every check, and with all shortcuts and another number of
    workers. Both runs have to leave the same files, and all tables have to follow from the trace. A scenario
    that fails is shrunk and written below the folder fuzz. 'fedsim fuzz FILE' examines one scenario, and so
    repeats the failure. The exit status is 1 if any scenario has failed.
    """
    late("cli.fuzz:fuzz")(**values)
