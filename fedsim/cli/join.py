"""``fedsim join``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fedsim.bus.http.access import ClientRanges
from fedsim.cli.console import note
from fedsim.errors import UserError
from fedsim.processes.addresses_and_tls import client_tls, server_url
from fedsim.processes.client import ClientProcess


def join(
    url: str,
    clients: str,
    token: str | None,
    ca: Path | None,
    state: Path | None,
    data: Path | None,
    workers: int | None,
    patience_s: float,
    quiet: bool,
    while_fed: bool,
) -> None:
    """Host clients until the run is over."""
    process = ClientProcess(
        url=server_url(url),
        clients=ClientRanges.parse(clients),
        token=token,
        tls=client_tls(ca),
        state=state,
        data=data,
        workers=workers,
        patience_s=patience_s,
        tell=(lambda line: None) if quiet else note,
    )
    try:
        asyncio.run(process.run(while_fed=while_fed))
    except ConnectionError as error:
        raise UserError(
            f"{error}. Check that the server runs ('fedsim serve'), the address, and that nothing in between "
            "keeps you apart; give --patience to wait for longer"
        ) from None
