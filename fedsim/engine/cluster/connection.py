"""This process and a Ray cluster: joining one, starting one, and noticing that one is gone.

Ray writes to the terminal, takes the signal SIGTERM for itself and counts its users over the network; here it
does none of that. A process that has joined a cluster waits for ever, or ends without a word after a minute,
when the cluster's head is gone, so that is looked for apart: whoever waits asks now and then whether the
head's port takes a connection.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

from pydantic import AfterValidator, Field

import fedsim
from fedsim.config import fault
from fedsim.errors import RunError, UserError
from fedsim.plugins import install_command, is_installed
from fedsim.quoting import MAX_SHOWN, quoted, shortened
from fedsim.system import num_usable_cores

AUTO, LOCAL = "auto", "local"

GONE_TIMEOUT_S = 10.0
"""A head that takes no connection for so long is gone, s."""

LEAVE_TIMEOUT_S = 20.0
"""How long leaving a cluster, or ending one, may take, s."""

_CONNECT_TIMEOUT_S = 2.0
"""How long a connection may take, s."""


def _an_address(text: str) -> str:
    if "://" in text:
        problem = (
            f"{quoted(text)} is the address of a Ray client, and fedsim has to run on a node of the cluster"
        )
        raise fault(problem, "run it there, such as by 'ray exec', and write 'auto'")
    host, _, port = text.rpartition(":")
    if text not in (AUTO, LOCAL) and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        problem = f"{quoted(text)} is no address of a cluster"
        raise fault(problem, "write 'auto', 'local', or HOST:PORT of its head, such as '10.0.0.1:6379'")
    return text


Address = Annotated[str, Field(min_length=1), AfterValidator(_an_address)]
"""``auto``, ``local``, or ``HOST:PORT`` of a cluster's head."""


class Connection:
    """A connection to a Ray cluster, closed by :meth:`close`; a UserError where it cannot be joined.

    Args:
        address: ``auto`` for the cluster that ``RAY_ADDRESS`` names or that this machine belongs to,
            ``local`` for a new one on this machine, or ``HOST:PORT``.
        num_cpus: CPUs that a new cluster has at least; it has as many as the machine.
    """

    def __init__(self, address: str, num_cpus: float = 0.0) -> None:
        if not is_installed("ray"):
            raise UserError(f"the package ray is not installed: {install_command('ray')}")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with _quiet():
            try:
                import ray
            except ImportError as error:
                text = shortened(error, MAX_SHOWN)
                raise UserError(
                    f"the package ray is installed, but cannot be imported ({text}): install it anew with "
                    "pip install --force-reinstall ray"
                ) from error
            self.ray: Any = ray
            # A notebook may have joined a cluster itself, and goes on with it afterwards.
            self._is_mine, self._is_closed = not ray.is_initialized(), False
            if self._is_mine:
                try:
                    self._join(address, num_cpus)
                except BaseException:  # Ctrl-C too: what has begun to start is ended
                    ray.shutdown()
                    raise
        self._head = ray.get_runtime_context().gcs_address
        if not self._is_mine and address not in (AUTO, LOCAL, self._head):
            raise UserError(
                f"this process belongs to the Ray cluster {self._head} already, not to {quoted(address)}: "
                "write 'auto', or call ray.shutdown() before"
            )
        self._last_there_s = monotonic()
        if self._is_mine:
            self._unmute = _mute_cluster_news()
            self._watchdog = _Watchdog(
                "fedsim: the run failed: this process was ended, which Ray does when its node of the "
                f"cluster {self._head} is gone, as after 'ray stop'. Nothing of the run is kept; begin it "
                "again when the cluster is back"
            )

    def _join(self, address: str, num_cpus: float) -> None:
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == LOCAL:
            cpus = max(num_usable_cores(), ceil(num_cpus))
            settings |= {"include_dashboard": False, "num_cpus": cpus}
        try:
            where = address if address == LOCAL else _head_that_answers(address)
            with _own_signals(), _fedsim_on_path():
                self.ray.init(address=where, **settings)
        except Exception as error:  # of many kinds, by what is wrong
            text = shortened(str(error).partition("\n")[0], MAX_SHOWN)
            if address == LOCAL:
                raise RunError(f"no Ray cluster could be started on this machine: {text}") from error
            of = "of RAY_ADDRESS or of this machine" if address == AUTO else quoted(address)
            raise UserError(
                f"the Ray cluster {of} cannot be joined ({text}): start one with 'ray start --head', "
                "and see that this process has its token ('ray get-auth-token') and RAY_AUTH_MODE=token, if "
                "it asks for one; or, for a run's jobs, write engine.params.address = 'local' for one that "
                "lasts as long as the run"
            ) from error

    @property
    def address(self) -> str:
        """``HOST:PORT`` of the head."""
        return str(self._head)

    @property
    def store_bytes(self) -> float:
        """Size of this node's object store."""
        here = self.ray.get_runtime_context().get_node_id()
        nodes = {node["NodeID"]: node["Resources"] for node in self.ray.nodes()}
        return float(nodes[here].get("object_store_memory", 0.0))

    def check(self) -> None:
        """Raise a RunError if the cluster has not answered for :data:`GONE_TIMEOUT_S`."""
        try:
            _knock(self._head)
        except OSError:
            away_s = monotonic() - self._last_there_s
            if away_s > GONE_TIMEOUT_S:
                raise RunError(
                    f"the Ray cluster {self._head} is gone: its head has taken no connection for "
                    f"{away_s:.0f} s. Nothing of this run is kept; begin it again when the cluster is back"
                ) from None
        else:
            self._last_there_s = monotonic()

    def close(self) -> None:
        """Leave a cluster that this object has joined, and end one that it has started."""
        if not self._is_mine or self._is_closed:
            return
        self._is_closed = True
        try:
            with _quiet():
                # Beside this thread, as it may never return where the cluster is gone. At the end of the
                # process Ray would try once more.
                leaving = threading.Thread(target=self._leave, daemon=True)
                leaving.start()
                leaving.join(LEAVE_TIMEOUT_S)
                if leaving.is_alive():
                    atexit.unregister(self.ray.shutdown)
        finally:  # after a second Ctrl-C too: the message would be untrue
            self._unmute()
            self._watchdog.stop()

    def _leave(self) -> None:
        with suppress(Exception):  # of a cluster that is gone
            self.ray.shutdown()


class _Watchdog:
    """Another process, which prints a message if this one ends before :meth:`stop`.

    Ray ends a process at once, with status 1 and in silence, when the connection to its own node breaks.
    Nothing in Python runs then.
    """

    # Waits for one byte, and prints the message if there is none when the other end closes.
    _CODE = "import os, sys; os.read(0, 1) or os.write(2, sys.argv[1].encode())"

    def __init__(self, message: str) -> None:
        # A session of its own: it outlives this process, and Ctrl-C.
        self._process = subprocess.Popen(  # noqa: S603
            (sys.executable, "-I", "-S", "-c", self._CODE, f"{message}\n"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """End it without a message."""
        self._process.communicate(b".")


def _head_that_answers(address: str) -> str:
    """Return ``HOST:PORT`` of a cluster that answers: Ray would try for minutes, and write lines."""
    from ray._private import services

    head = services.canonicalize_bootstrap_address(address)
    if head is None or head == AUTO:
        raise ConnectionError("there is none on this machine")
    _knock(head)
    return str(head)


def _knock(head: str) -> None:
    host, _, port = head.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray's warnings and log lines from the terminal."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handlers of this process's signals, which Ray replaces in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _fedsim_on_path() -> Iterator[None]:
    """Let processes that are started in this block find fedsim where this one has found it."""
    before = os.environ.get("PYTHONPATH")
    home = str(Path(fedsim.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (home, before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _mute_cluster_news() -> Any:
    """Keep what Ray prints of nodes and workers that die from the terminal; return what undoes that.

    There is no setting for it. What matters of it is in the error of the run, or in its record.
    """
    from ray._private import worker

    printed = getattr(worker, "print_to_stdstream", None)
    if printed is None:  # in another version
        return lambda: None
    setattr(worker, "print_to_stdstream", lambda *args, **kwargs: None)  # noqa: B010
    return lambda: setattr(worker, "print_to_stdstream", printed)
