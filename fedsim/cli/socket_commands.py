"""The commands of runs over sockets, and of who may take part in them."""

from __future__ import annotations

from typing import Any

import click

from fedsim.cli.options import (
    emulate_options,
    late,
    number_option,
    one_run,
    output_of_one,
    path_option,
    read_by,
)

read_duration = read_by("units:parse", "time", positive=True)


@click.command()
@one_run
@click.option(
    "--listen",
    default="127.0.0.1:8470",
    show_default=True,
    metavar="HOST:PORT",
    callback=read_by("processes.addresses_and_tls:address"),
    help="Where to listen.",
)
@path_option("--tls-cert", "FILE", "Certificate, in PEM.")
@path_option("--tls-key", "FILE", "Its private key, in PEM.")
@path_option("--tokens", "FILE", "Ask for tokens; 'fedsim token new' writes them.")
@click.option(
    "--insecure", is_flag=True, help="Listen beyond this machine without TLS or without tokens all the same."
)
@click.option(
    "--wait",
    "wait_s",
    metavar="DURATION",
    callback=read_duration,
    help="Begin after this time with the clients that have joined, such as '5 min'.  [default: wait for all]",
)
@emulate_options
@output_of_one
def serve(**values: Any) -> None:
    """Run a scenario over real sockets, in real time.

    Clients are hosted by processes that 'fedsim join' starts, on this machine or others. The run begins when
    all clients that can take part have joined, and writes the same folder as 'fedsim run'. Speeds, links and
    availability of the scenario's devices are not used, as machines have their own, unless --emulate holds
    clients to them.
    """
    late("cli.sockets:serve")(**values)


@click.command()
@click.argument("url")
@click.option("--clients", required=True, metavar="0-9,12", help="The clients to host.")
@click.option(
    "--token",
    envvar="FEDSIM_TOKEN",
    metavar="TOKEN",
    help="The secret of 'fedsim token new'; the variable FEDSIM_TOKEN is seen by fewer.",
)
@path_option("--ca", "FILE", "Trust this certificate, in PEM.")
@path_option(
    "--state",
    "DIR",
    "Keep clients' states here, so that a process that was killed goes on when it is started again.",
)
@path_option(
    "--data", "DIR", "Folder of data sets, where the scenario's is not here.  [default: FEDSIM_DATA]"
)
@number_option("--workers", "Workers", "Jobs at once.  [default: the scenario's]")
@click.option(
    "--patience",
    "patience_s",
    default="10 min",
    show_default=True,
    metavar="DURATION",
    callback=read_duration,
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
    late("cli.sockets:join")(**values)


@click.group()
def token() -> None:
    """Make tokens, with which client processes show who they are."""


@token.command("new")
@click.option("--clients", required=True, metavar="0-9,12", help="The clients that it grants.")
@path_option("--tokens", "FILE", "Add it, hashed, to this file of the server's.")
def new_token(**values: Any) -> None:
    """Make a token, and print it.

    The secret goes to the holder, who gives it to 'fedsim join' as FEDSIM_TOKEN or --token. The server knows
    only a hash of it, which is added to the file for 'fedsim serve --tokens', or shown.
    """
    late("cli.token:new")(**values)
