"""Runs over real sockets from Python: one process serves, others join."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedsim.api.interruptible_thread import call
from fedsim.api.progress import Progress, round_listeners
from fedsim.api.results import Result
from fedsim.api.runs import record_run
from fedsim.bus.http.access import ClientRanges
from fedsim.errors import UserError
from fedsim.processes.addresses_and_tls import address, client_tls, server_url
from fedsim.processes.client import ClientProcess
from fedsim.processes.server import ServerProcess
from fedsim.scenario import Algorithm, Overrides, Plan, Source, load_scenario

Tell = Callable[[str], None]
"""Called with a line for a person."""


def serve(
    scenario: Source,
    *,
    listen: str = "127.0.0.1:8470",
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    tokens: str | Path | None = None,
    insecure: bool = False,
    wait_s: float | None = None,
    speed_up: float | None = None,
    listening: Tell = print,
    tell: Tell = print,
    algorithm: Algorithm | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
    out: str | Path | None = None,
    force: bool = False,
    verify: bool = False,
    progress: Progress = None,
) -> Result:
    """Run a scenario in real time, as the server of processes that :func:`join`, and return its result.

    Args:
        scenario: A file, an example by name, a dictionary of tables, or a scenario that was loaded before.
        listen: Where, as ``HOST:PORT``; port 0 lets the system choose.
        tls_cert: Certificate, in PEM.
        tls_key: Its private key, in PEM.
        tokens: File of tokens to ask for, as ``fedsim token new`` writes it.
        insecure: Whether to listen beyond this machine without TLS or without tokens all the same.
        wait_s: Begin after so long with the clients that have joined; None to wait for all.
        speed_up: Emulate: hold each client to its device, its link and its availability, and let so many
            emulated seconds pass in a real one. None: devices and links are those of the processes.
        listening: Called with the server's URL once it listens.
        tell: Called with a line for a person when a process joins, leaves or is refused, and why.
        algorithm: Run this one instead of the scenario's.
        seed: Instead of the scenario's.
        overrides: Values that replace the scenario's, by path.
        out: Folder of the results; if left out a temporary one, which goes with the result.
        force: Whether ``out`` may replace another run.
        verify: Whether every invariant is checked while running; slower.
        progress: Called with each round as it ends; or True or False, as for :func:`run`.

    Raises:
        ScenarioError: All that is wrong with the scenario.
        OutputError: The place of the results is occupied or cannot be written.
        RunError: The run failed, or no client has come.
        UserError: The address cannot be listened at, or everybody could join; or the run cannot be emulated.
    """
    loaded = load_scenario(scenario, overrides or (), algorithm=algorithm, seed=seed)
    where = address(listen)

    def perform(plan: Plan) -> ServerProcess:
        return ServerProcess(
            plan=plan,
            address=where,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tokens=tokens,
            insecure=insecure,
            wait_s=wait_s,
            speed_up=speed_up,
            listening=listening,
            tell=tell,
        )

    with round_listeners(progress, [loaded.run.rounds]) as listener_of:
        do = partial(record_run, loaded, out, force, verify, listener_of, perform=perform)
        return call(partial(do, clients_stay=speed_up is None))


def join(
    url: str,
    clients: str,
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    state: str | Path | None = None,
    data: str | Path | None = None,
    workers: int | None = None,
    patience_s: float = 600.0,
    tell: Tell = print,
) -> None:
    """Host clients of a run that :func:`serve` holds, until it is over; join only servers that you trust.

    Args:
        url: The server's.
        clients: The clients to host, such as ``0-9,12``.
        token: The secret that grants them, where the server asks for one.
        ca: A certificate to trust, in PEM, instead of those that the system trusts.
        state: Folder in which clients' states outlive this process.
        data: Folder of data sets, used where the scenario's is not on this machine.
        workers: Jobs at once; None for the scenario's.
        patience_s: Time without the server after which to give up.
        tell: Called with a line for a person.

    Raises:
        RunError: The run failed, or the server was stopped.
        UserError: The server is away for good, or refuses this process; its scenario cannot be built here, or
            gives other data here; or an argument is out of its range.
    """
    if workers is not None and workers < 1:
        raise UserError(
            f"workers is {workers}: at least 1 job runs at a time; leave it out for the scenario's"
        )
    if patience_s <= 0:
        raise UserError(f"patience_s is {patience_s:g}: write a time greater than 0, in seconds")
    process = ClientProcess(
        url=server_url(url),
        clients=ClientRanges.parse(clients),
        token=token,
        tls=client_tls(ca),
        state=None if state is None else Path(state),
        data=None if data is None else Path(data),
        workers=workers,
        patience_s=patience_s,
        tell=tell,
    )
    call(process)
