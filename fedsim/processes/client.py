"""A client process of a run over sockets, from the server's greeting to the end of the run."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import FedsimError, UserError
from fedsim.quoting import printable
from fedsim.runtime.parts import Parts
from fedsim.runtime.sockets.handshake import Greeting, check_data, read
from fedsim.runtime.sockets.join import host
from fedsim.scenario import build
from fedsim.scenario.build import read_resolved, with_own_root


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProcess:
    """A client process.

    Attributes:
        url: The server's.
        clients: The clients to host.
        token: The secret that grants them, where the server asks for one.
        tls: Which certificates to trust; None for those that the system trusts.
        state: Folder in which clients' states outlive this process; None for no folder.
        data: Folder of data sets, used where the scenario's is not on this machine.
        workers: Jobs at once; None for the scenario's.
        patience_s: Time without the server after which the process gives up.
        tell: Called with a line for a person.
    """

    url: str
    clients: ClientRanges
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    state: Path | None = None
    data: Path | None = None
    workers: int | None = None
    patience_s: float
    tell: Callable[[str], None] = lambda line: None

    def __call__(self) -> None:
        """Join, build, host the clients until the run is over."""
        try:
            asyncio.run(self.run())
        except ConnectionError as error:
            raise UserError(
                f"{error}. Check that the server runs ('fedsim serve'), the address, and that nothing in "
                "between keeps you apart; or give more patience"
            ) from None

    async def run(self) -> None:
        """Do it on the running loop."""
        folder = None if self.state is None else StateFolder(self.state)
        client = HttpClient(
            self.url,
            clients=self.clients,
            token=self.token,
            ssl=self.tls,
            limits=HttpLimits(patience_s=self.patience_s),
            state=folder,
            tell=self.tell,
        )
        why = "it was stopped"
        try:
            greeting = read(await client.connect())
            self.tell(f"joined {self.url} for the clients {self.clients}: {printable(greeting.algorithm)}")
            # Beside the loop, which has heartbeats to send meanwhile.
            parts = await asyncio.to_thread(self.build, greeting)
            await host(parts, client, folder=folder, warn=self._warn, emulates=greeting.emulates)
            self.tell("the run is over")
        except FedsimError as error:
            why = str(error)
            raise
        finally:
            await client.close(why=why)
            if folder is not None:
                folder.close()

    def build(self, greeting: Greeting) -> Parts:
        """Return the parts of the run, from the server's scenario and this machine's data."""
        scenario = read_resolved(greeting.scenario, self.data)
        scenario = with_own_root(scenario, None if self.data is None else str(self.data))
        if self.workers is not None:
            engine = scenario.engine.model_copy(update={"workers": self.workers})
            scenario = scenario.model_copy(update={"engine": engine})
        parts = build(scenario, f"the scenario of {self.url}")
        check_data(greeting, parts.data)
        return replace(parts, verify=greeting.verify)

    def _warn(self, event: str, **values: Any) -> None:
        details = ", ".join(f"{name} {value}" for name, value in values.items())
        self.tell(f"note: {event} ({details})")
