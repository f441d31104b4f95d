"""``fedsim join``."""

from __future__ import annotations

from pathlib import Path

import click

from fedsim.cli.options import WORKERS
from fedsim.cli.sockets import client_tls, seconds
from fedsim.errors import UserError
from fedsim.quoting import quoted

_SCHEMES = ("http://", "https://")


@click.command("join")
@click.argument("url")
@click.option("--clients", required=True, metavar="0-9,12", help="The clients to host.")
@click.option(
    "--token",
    envvar="FEDSIM_TOKEN",
    metavar="TOKEN",
    help="The secret of 'fedsim token new'; the variable FEDSIM_TOKEN is seen by fewer.",
)
@click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="Trust this certificate, in PEM.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep clients' states here, so that a process that was killed goes on when it is started again.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of data sets, where the scenario's is not here.  [default: FEDSIM_DATA]",
)
@click.option("--workers", type=WORKERS, help="Jobs at once.  [default: the scenario's]")
@click.option(
    "--patience",
    default="10 min",
    show_default=True,
    metavar="DURATION",
    callback=seconds,
    help="Give up after so long without the server.",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing while all is well.")
@click.option("--while-fed", is_flag=True, hidden=True, help="End when the standard input does.")
def command(
    url: str,
    clients: str,
    token: str | None,
    ca: Path | None,
    state: Path | None,
    data: Path | None,
    workers: int | None,
    patience: float,
    quiet: bool,
    while_fed: bool,
) -> None:
    """Host clients of a run that 'fedsim serve' holds at URL.

    The server sends the scenario, and this process builds its clients' data and models from it; join only
    servers that you trust. Where the data come out other than at the server, it ends at once and says what
    differs. Whether it verifies is for the server to say. It ends with the run.
    """
    from fedsim.bus.http.access import ClientRanges

    if not url.startswith(_SCHEMES):
        raise UserError(f"{quoted(url)} is no address of a server: write it as http://127.0.0.1:8470")
    ranges, tls = ClientRanges.parse(clients), client_tls(ca)

    import asyncio

    from fedsim.cli.joining import Joining

    joining = Joining(
        url=url,
        clients=ranges,
        token=token,
        tls=tls,
        state=state,
        data=data,
        workers=workers,
        patience_s=patience,
        quiet=quiet,
    )
    try:
        asyncio.run(joining.whole(while_fed=while_fed))
    except ConnectionError as error:
        raise UserError(
            f"{error}. Check that the server runs ('fedsim serve'), the address, and that nothing in between "
            "keeps you apart; give --patience to wait for longer"
        ) from None
