"""Settings of the whole suite: one thread for arithmetic, repeatable examples. And a disk that fails."""

import csv
import errno
import gc
import io
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from fedsim import durable

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Nets this small only wait for other threads. Read when torch is imported, here and in processes of tests.
os.environ["OMP_NUM_THREADS"] = "1"

settings.register_profile(
    "fedsim", derandomize=True, deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("fedsim"), max_examples=8)
settings.load_profile("fedsim")

# Importing the tests and their libraries makes millions of objects that stay, and nothing to collect.
gc.disable()


def pytest_configure() -> None:
    """Hear Ctrl-C, which a shell lets commands in the background ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.unfreeze()  # all that stays is old now, without having been looked through
    gc.enable()
    gc.set_threshold(20_000)  # looking through all that stays takes half a second
    # pytest puts its handlers, six times a test, on each logger that does not propagate: torch has forty.
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True


def pytest_sessionfinish() -> None:
    gc.freeze()  # pytest collects garbage at the end, of which there is little


CALLS = ("open", "fsync", "rename", "replace", "mkdir", "unlink")
WRITES = ("write", "fsync")


class Disk:
    """Fails one of the calls that open, write, synchronise, move or remove files below a folder."""

    def __init__(self, below: Path) -> None:
        self.calls: list[str] = []
        self._below = below
        self._at: int | None = None
        self._is_full = False

    @contextmanager
    def fails(self, at: int | None, *, is_full: bool = False) -> Iterator[list[str]]:
        """Fail the call of this number, from 0; where the disk is full, all later writes fail too."""
        self.calls, self._at, self._is_full = [], at, is_full
        try:
            yield self.calls
        finally:
            self.calls, self._at = [], None

    def shim(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            # Of a file: its number, or the object; of a path: only one below the folder.
            path = arguments[0]
            if not isinstance(path, str | os.PathLike) or self._below in Path(path).absolute().parents:
                self.calls.append(name)
                number = len(self.calls) - 1
                is_late = self._is_full and self._at is not None and number > self._at and name in WRITES
                if number == self._at or is_late:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **named)

        return call


@pytest.fixture(scope="session", autouse=True)
def _nobody_waits_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture
def collect() -> Iterator[Callable[[], int]]:
    """Return what collects the garbage of this test, and does not look through all that was there before."""
    gc.freeze()
    yield gc.collect
    gc.unfreeze()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk under the test's folder."""
    made = Disk(tmp_path)
    for name in CALLS:
        monkeypatch.setattr(os, name, made.shim(name, getattr(os, name)))
    monkeypatch.setattr(io, "open", made.shim("open", io.open))
    monkeypatch.setattr(durable._Growing, "_put", made.shim("write", durable._Growing._put))
    return made


T = TypeVar("T")


def there(value: T | None) -> T:
    assert value is not None
    return value


def rows_of(csv_text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text)))


class InProcess:
    """Does the tasks of a study in this process, one after the other, in place of a pool of processes."""

    def __init__(self, tasks: Sequence[Mapping[str, Any]], jobs: int, start: object) -> None:
        self.tasks = tasks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def messages(self) -> Iterator[tuple[int, Any]]:
        """Yield what becomes of each."""
        from fedsim.studies.worker import do  # takes long to import

        for number, task in enumerate(self.tasks):
            yield number, {"round": 1}
            yield number, do({**task, "wait": False}, io.StringIO())


Certify = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="session")
def certify(tmp_path_factory: pytest.TempPathFactory) -> Certify:
    """Return what makes a certificate of a name that signs itself, for some addresses, and its key."""
    program, folder = shutil.which("openssl"), tmp_path_factory.mktemp("certificates")

    def make(name: str, names: str = "IP:127.0.0.1,DNS:localhost") -> tuple[Path, Path]:
        if program is None:
            pytest.skip("openssl is not here: it makes the certificates")
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        if not certificate.exists():
            command = [
                *(program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"),
                *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
                *("-keyout", str(key), "-out", str(certificate)),
            ]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        return certificate, key

    return make


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let studies do their runs in this process, and start none."""
    monkeypatch.setattr("fedsim.studies.perform.WorkerPool", InProcess)


@pytest.fixture
def tiny_scenario() -> str:
    """Return a scenario of four clients, a linear model on the digits, and two rounds of FedAvg."""
    return """
[run]
rounds = 2

[data]
name = "digits"
limit = 200
global_test = 0.1

[data.public]
size = 20

[models.linear]

[[fleet]]
count = 4
device = "high"
"""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A Chromium of the system, for the tests of one file, none of which may be asynchronous."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip(f"pages are tested in a browser, and here is none ({', '.join(names)}): make browser")
    playwright = pytest.importorskip("playwright.sync_api", reason="a browser is driven by playwright")
    with playwright.sync_playwright() as driver:
        # Its sandbox needs what containers often do not have; what it opens here is ours.
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script axe-core, which looks for what keeps people out of a page."""
    file = Path(__file__).parents[1] / "build/npm/node_modules/axe-core/axe.min.js"
    if not file.exists():
        pytest.skip("what keeps people out of a page is found by axe-core, and it is not here: make browser")
    return file.read_text("utf-8")
