"""The commands and their options. Nothing heavy is imported here, so that help and completion are fast.

What does the work of a command, or reads the value of an option, is named by its place and imported when it
is called: see :func:`late`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from fedsim import __version__
from fedsim.cli.error_handling import Group
from fedsim.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

FOLDERS = {
    "algorithms": "fedsim.algorithms",
    "datasets": "fedsim.data",
    "models": "fedsim.models",
    "partitions": "fedsim.data.partitions",
    "augmentations": "fedsim.data.augmentations",
    "devices": "fedsim.fleet.devices",
    "availability": "fedsim.fleet.availability",
    "networks": "fedsim.network",
    "executors": "fedsim.engine.executors",
    "selectors": "fedsim.runtime.policies.selectors",
    "pacings": "fedsim.runtime.policies.pacing",
    "staleness": "fedsim.runtime.policies.staleness",
    "workloads": "fedsim.runtime.policies.workloads",
    "trackers": "fedsim.trackers",
    "schedules": "fedsim.engine.schedules",
}
"""Where the plugins of each kind are."""

COLUMNS = "columns"
"""What can be listed beside plugins."""


def late(place: str) -> Callable[..., Any]:
    """Return a function that is imported when it is called.

    Args:
        place: Its module and its name, as in ``cli.serve:serve``.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        module, _, name = place.partition(":")
        return getattr(import_module(f"fedsim.{module}"), name)(*args, **kwargs)

    return call


def _read_by(place: str, *args: Any, **kwargs: Any) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that reads an option's text by a late function, whose UserErrors name the option."""
    read = late(place)

    def callback(context: click.Context, parameter: click.Parameter, text: Any) -> Any:
        if text is None or text == () or context.resilient_parsing:  # completion needs no values
            return text
        try:
            return read(text, *args, **kwargs)
        except UserError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _all(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _path(name: str, metavar: str, words: str) -> Callable[[Any], Any]:
    return click.option(name, metavar=metavar, type=click.Path(path_type=Path), help=words)


def _number(name: str, kind: str, words: str, metavar: str = "INTEGER") -> Callable[[Any], Any]:
    """Return an option of a whole number, in the range of a type of :mod:`fedsim.ranges`."""
    return click.option(name, metavar=metavar, callback=_read_by("cli.values:whole_number", kind), help=words)


def _set(metavar: str, words: str, name: str = "overrides") -> Callable[[Any], Any]:
    complete = late("cli.completion:value") if name == "overrides" else None
    help_text = f"{words}; may be repeated."
    return click.option(
        "--set", name, metavar=metavar, multiple=True, shell_complete=complete, help=help_text
    )


_duration = _read_by("units:parse", "time", positive=True)
_quiet = click.option("--quiet", "-q", is_flag=True, help="Show no progress, only the result.")


def _file(name: str, metavar: str, completed: str) -> Callable[[Any], Any]:
    """Return an argument that is a file or an example, completed by a function of :mod:`cli.completion`."""
    complete = late(f"cli.completion:{completed}")
    return click.argument(name, metavar=metavar, type=click.Path(path_type=Path), shell_complete=complete)


_scenario_file = _file("scenario_file", "SCENARIO", "scenarios")
_scenario = _all(
    _scenario_file,
    _set("PATH=VALUE", "Replace a value, such as --set training.lr=0.1"),
)
_algorithm = click.option(
    "--algorithm",
    metavar="NAME",
    shell_complete=late("cli.completion:algorithm"),
    help="Run this algorithm instead of the scenario's.",
)


def _output(*, track: str, force: str, verify: str) -> Callable[[Any], Any]:
    """Return the options of results; what they do depends on whether a command does one run or several."""
    return _all(
        click.option(
            "--track",
            metavar="TRACKER",
            multiple=True,
            callback=_read_by("cli.track:known"),
            shell_complete=late("cli.completion:tracker"),
            help=f"{track}; may be repeated. ('fedsim track' shows results.)",
        ),
        click.option(
            "--live",
            metavar="[PORT]",
            is_flag=False,
            flag_value="0",
            callback=_read_by("cli.values:port"),
            help="Show what goes on in a page for a browser of this machine, whose address is printed.  "
            "[default PORT: one that is free]",
        ),
        click.option("--force", is_flag=True, help=force),
        click.option("--verify", is_flag=True, help=verify),
        _quiet,
    )


_output_of_one = _output(
    track="Show the run in this tracker while it goes on, such as tensorboard, instead of the scenario's",
    force="Replace the results of another run; those of the same one are replaced in any case.",
    verify="Check every invariant while running; slower. Over sockets the server checks its own hooks, "
    "the ledger and the trace, and client processes their hooks and jobs.",
)
_output_of_several = _output(
    track="Show runs in this tracker while they go on, such as tensorboard, instead of the scenario's",
    force="Replace other results that are in the way; runs that are there already are kept.",
    verify="Check every invariant while runs go on; slower. Runs that are there already are not checked.",
)
_on = click.option(
    "--on",
    type=click.Choice(["ray"]),
    help="Spread the runs over a Ray cluster, that of RAY_ADDRESS or of this machine, instead of doing them "
    "here; --jobs then bounds how many it does at once. (Needs the extra fedsim[ray].)",
)
_report = click.option(
    "--report", is_flag=True, help="Write report.html too, for a browser, as 'fedsim report' does."
)
_one_run = _all(
    _scenario,
    _algorithm,
    _number("--seed", "Seed", "Use this seed instead of the scenario's."),
    _path(
        "--out",
        "DIR",
        "Folder of the results.  [default: runs/<name>/<algorithm>-seed<seed>, with a number if it holds "
        "another run]",
    ),
)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="fedsim", message="%(prog)s %(version)s")
def main() -> None:
    """Simulate federated learning: real training, real bytes, simulated time.

    A scenario is a TOML file, or the name of an example such as quickstart. It describes a fleet of devices,
    a data set and how it is spread, and an algorithm. Any value in it can be replaced with --set PATH=VALUE.
    """


@main.command()
@_one_run
@click.option(
    "--bus",
    type=click.Choice(["memory", "http"]),
    default="memory",
    show_default=True,
    help="Simulate in this process, or run in real time over sockets between processes of this machine.",
)
@_number("--processes", "Processes", "Client processes, with --bus http.  [default: 2]", "N")
@click.option(
    "--profile",
    is_flag=True,
    help="Also note when each worker was at which jobs, in real time, for 'fedsim timeline'.",
)
@_output_of_one
def run(bus: str, processes: int | None, profile: bool, **values: Any) -> None:
    """Run a scenario, and write a folder with its results."""
    if bus == "http":
        if profile:
            raise UserError(
                "--profile notes the jobs of this process, but over sockets processes of clients do them: "
                "leave out --profile or --bus http"
            )
        late("cli.serve:run")(processes=processes or 2, **values)
    elif processes is not None:
        raise UserError("--processes is for runs over sockets: give --bus http too, or leave it out")
    else:
        late("cli.run:run")(profile=profile, **values)


@main.command()
@_scenario_file
@_set(
    "PATH=V1,V2",
    "Replace a value, or run with each of several, such as --set training.lr=0.1,0.5, in every combination "
    "with others (commas in brackets, braces or quotation marks belong to a value: [8, 16] is one, a list)",
)
@click.option(
    "--algorithms",
    required=True,
    metavar="A,B",
    callback=_read_by("cli.values:algorithms"),
    shell_complete=late("cli.completion:algorithms"),
    help="The algorithms to compare, separated by commas.",
)
@click.option(
    "--seeds",
    metavar="0,1",
    callback=_read_by("cli.values:seeds"),
    help="Run each algorithm with each of these seeds.  [default: the scenario's]",
)
@click.option(
    "--target",
    "targets",
    metavar="SHARE",
    multiple=True,
    callback=_read_by("cli.values:targets"),
    help="Show what each costs until it reaches this accuracy, such as 0.8; may be repeated.",
)
@_number(
    "--jobs",
    "Processes",
    "Runs at once, in processes of their own.  [default: one, in this process unless values are varied]",
    "N",
)
@_on
@_path(
    "--out",
    "DIR",
    "Folder of the run folders.  [default: runs/<name>, with a number if it holds others]",
)
@_report
@_output_of_several
def compare(**values: Any) -> None:
    """Run several algorithms, and show side by side what each costs.

    Beside the folders of the runs, comparison.csv and comparison.json hold what the tables show and more, and
    answers.csv and study.parquet what a study's do. Runs that are there already are not done again.

    With several values of a path it is a study with a grid, and leaves the folder that 'fedsim study' does.
    """
    late("cli.compare:compare")(**values)


@main.command()
@_file("study_file", "FILE", "studies")
@_path("--out", "DIR", "Folder of the results.  [default: runs/<name>, with a number if it holds others]")
@_number("--jobs", "Processes", "Runs at once.  [default: as many as there are cores and memory for]", "N")
@_on
@_report
@_output_of_several
def study(**values: Any) -> None:
    """Run a study, and show what reaching its targets costs.

    FILE says what is varied: variants of a scenario, a grid of values, seeds. Runs go in processes of their
    own. A run that is there already is not done again, so a study that was stopped goes on where it was.
    Runs that fail are listed at the end.
    """
    late("cli.study:study")(**values)


@main.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--to",
    required=True,
    metavar="TRACKER",
    shell_complete=late("cli.completion:tracker"),
    help="The tracker; 'fedsim list trackers' shows which there are.",
)
@_path("--out", "DIR", "Folder to write into.  [default: one called like the tracker, beside the run's]")
@_set("KEY=VALUE", "Set a parameter of the tracker, such as --set uri=http://localhost:5000", "params")
def track(**values: Any) -> None:
    """Show a run, a comparison or a study in a tracker.

    FOLDER is that of the results. The tracker is told what their tables say of each round, by round, by
    simulated time and by bytes. 'fedsim run --track' does the same while a run goes on.
    """
    late("cli.track:track")(**values)


@main.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@_path(
    "--out",
    "FILE",
    "The file to write.  [default: report.html in the folder; of a run, a file beside its folder]",
)
@_path(
    "--figures",
    "DIR",
    "Also write each figure into this folder, as SVG, PNG and PDF, and its data as CSV. (Needs the extra "
    "fedsim[figures].)",
)
@click.option("--force", is_flag=True, help="Replace files of figures, and one that is no report of fedsim.")
def report(**values: Any) -> None:
    """Show a run, a comparison or a study in one HTML file.

    FOLDER is that of the results. The file has the answer, figures, tables and how it was done. It needs no
    network and no other file: a browser opens it, and it can be sent to others.
    """
    late("cli.report:report")(**values)


@main.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@_path("--out", "FILE", "Where to write it.  [default: beside the run's folder, with .pftrace at its end]")
@_number("--clients", "ShownClients", "Show at most so many clients.  [default: 60]", "N")
def timeline(**values: Any) -> None:
    """Write the timeline of a run, to look at in Perfetto.

    RUN is the folder of its results. The file opens at https://ui.perfetto.dev, which reads it in the browser
    and sends it nowhere. It shows each client's dispatches by phase, the frames between clients and server,
    rounds and merges, and how the server's link was used. Of large fleets it shows the slowest, the median
    and the fastest clients.
    """
    late("cli.timeline:timeline")(**values)


@main.command()
@click.argument("first", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("second", metavar="RUN", type=click.Path(path_type=Path))
def diff(**values: Any) -> None:
    """Find the first event at which two runs part.

    Shows what differs in their settings, versions and hosts, the last events that they have in common, and
    the first that differs. The exit status is 0 if both have the same events and models, 1 if they differ.
    """
    late("cli.diff:diff")(**values)


@main.command()
@_one_run
@click.option(
    "--listen",
    default="127.0.0.1:8470",
    show_default=True,
    metavar="HOST:PORT",
    callback=_read_by("processes.addresses_and_tls:address"),
    help="Where to listen.",
)
@_path("--tls-cert", "FILE", "Certificate, in PEM.")
@_path("--tls-key", "FILE", "Its private key, in PEM.")
@_path("--tokens", "FILE", "Ask for tokens; 'fedsim token new' writes them.")
@click.option(
    "--insecure", is_flag=True, help="Listen beyond this machine without TLS or without tokens all the same."
)
@click.option(
    "--wait",
    "wait_s",
    metavar="DURATION",
    callback=_duration,
    help="Begin after this time with the clients that have joined, such as '5 min'.  [default: wait for all]",
)
@_output_of_one
def serve(**values: Any) -> None:
    """Run a scenario over real sockets, in real time.

    Clients are hosted by processes that 'fedsim join' starts, on this machine or others. The run begins when
    all clients that can take part have joined, and writes the same folder as 'fedsim run'. Speeds, links and
    availability of the scenario's devices are not used: machines have their own.
    """
    late("cli.serve:serve")(**values)


@main.command()
@click.argument("url")
@click.option("--clients", required=True, metavar="0-9,12", help="The clients to host.")
@click.option(
    "--token",
    envvar="FEDSIM_TOKEN",
    metavar="TOKEN",
    help="The secret of 'fedsim token new'; the variable FEDSIM_TOKEN is seen by fewer.",
)
@_path("--ca", "FILE", "Trust this certificate, in PEM.")
@_path(
    "--state",
    "DIR",
    "Keep clients' states here, so that a process that was killed goes on when it is started again.",
)
@_path("--data", "DIR", "Folder of data sets, where the scenario's is not here.  [default: FEDSIM_DATA]")
@_number("--workers", "Workers", "Jobs at once.  [default: the scenario's]")
@click.option(
    "--patience",
    "patience_s",
    default="10 min",
    show_default=True,
    metavar="DURATION",
    callback=_duration,
    help="Give up after this time without the server.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing unless something fails.")
@click.option("--while-fed", is_flag=True, hidden=True, help="End when the standard input does.")
def join(**values: Any) -> None:
    """Host clients of a run that 'fedsim serve' holds at URL.

    The server sends the scenario, and this process builds its clients' data and models from it; join only
    servers that you trust. If the data differ from the server's, the process stops and says what differs.
    The server decides whether client processes verify. The process ends with the run.
    """
    late("cli.join:join")(**values)


@main.group()
def token() -> None:
    """Make tokens, with which client processes show who they are."""


@token.command("new")
@click.option("--clients", required=True, metavar="0-9,12", help="The clients that it grants.")
@_path("--tokens", "FILE", "Add it, hashed, to this file of the server's.")
def new_token(**values: Any) -> None:
    """Make a token, and print it.

    The secret goes to the holder, who gives it to 'fedsim join' as FEDSIM_TOKEN or --token. The server knows
    only a hash of it, which is added to the file for 'fedsim serve --tokens', or shown.
    """
    late("cli.token:new")(**values)


@main.command("list")
@click.argument("kind", type=click.Choice([*FOLDERS, COLUMNS]))
@click.option(
    "--details", is_flag=True, help="Show the parameters of each, with defaults; of columns, the type."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
def list_(kind: str, **values: Any) -> None:
    """List the plugins of a kind, or the columns of all tables."""
    if kind == COLUMNS:
        late("cli.column_listing:list_columns")(**values)
    else:
        late("cli.listing:list_plugins")(kind=kind, **values)


@main.command()
@_file("scenario_file", "SCENARIO", "scenarios_and_studies")
@_set("PATH=VALUE", "Replace a value, such as --set training.lr=0.1")
@_algorithm
@_number("--jobs", "Processes", "Of a study: runs at once.  [default: those of 'fedsim study']", "N")
def check(**values: Any) -> None:
    """Check a scenario or a study, and show what it will cost.

    Shows the fleet, the data and the models, and rehearses the first rounds without training, so that bytes
    and times are measured and not estimated. If the rehearsal fails, the exit status is 2. Of a study it
    shows the number of runs. Real time is forecast from a few jobs that are done.
    """
    late("cli.check:check")(**values)


@main.command()
@click.argument("example", shell_complete=late("cli.completion:examples"))
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a file.")
def new(**values: Any) -> None:
    """Write an example scenario to FILE, to start from.

    If FILE is left out, it has the example's name. EXAMPLE is the name of a scenario that fedsim brings
    along, such as quickstart. The files that it names, such as a table of devices, are written beside it.
    """
    late("cli.new:new")(**values)


@main.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    late("cli.check:schema")()


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands in a shell.

    Names are those of scenarios, studies, algorithms (also in a list), trackers and kinds of plugins.

    In ~/.bashrc: eval "$(fedsim completion bash)"; likewise for zsh in ~/.zshrc. For fish, in
    ~/.config/fish/config.fish: fedsim completion fish | source
    """
    late("cli.completion:print_script")(shell=shell)
