"""Whole runs between processes of the operating system."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.report.read_parquet import read_columns
from tests.cli.conftest import Call

pytestmark = pytest.mark.slow

TIMEOUT_S = 300.0
"""More than any machine takes."""
PAUSE_S = 0.05


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        # Any folder but the working one: fedsim is found however the tests find it.
        paths = [place for place in sys.path if place]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}

    def start(self, *arguments: str) -> "Started":
        output = self.folder / f"output{len(self.started)}"
        with output.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "fedsim", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return Started(process, output)


class Started:
    def __init__(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.process = process
        self.output = output

    def said(self) -> str:
        return self.output.read_text()

    def says(self, word: str) -> str:
        """Wait for a word; return all that was said by then."""
        self.waits(lambda: word in self.said())
        return self.said()

    def waits(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(PAUSE_S)  # noqa: TID251 - what is waited for is another process

    def ends(self) -> int:
        return self.process.wait(TIMEOUT_S)


@pytest.fixture
def shell(here: Path) -> Iterator[Shell]:
    made = Shell(here)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


def summary(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())


def _address(said: str) -> str:
    return next(word.rstrip(",") for word in said.split() if word.startswith(("http://", "https://")))


SLOW = ("--algorithm", "fedme", "--set", "run.rounds=6", "--set", "evaluation.every=6")
FEEDBACK = '{ chain = ["delta", "topk", "int8"], error_feedback = true, least = "1 B" }'
CODED = ("--set", "run.rounds=6", "--set", "training.epochs=100", "--set", f"codec.up.models={FEEDBACK}")


@pytest.mark.parametrize("given", [SLOW, CODED], ids=["fedme", "fedavg with error feedback"])
def test_one_of_two_processes_is_killed_and_started_again(
    given: Sequence[str], shell: Shell, call: Call, here: Path
) -> None:
    serve = shell.start("serve", "tiny.toml", "--listen", "127.0.0.1:0", "--out", "there", *given)
    url = _address(serve.says("listening"))
    one = shell.start("join", url, "--clients", "0,1")
    other = shell.start("join", url, "--clients", "2-3", "--state", "state")
    serve.says("round 1/6")
    other.process.send_signal(signal.SIGKILL)
    assert other.ends() == -signal.SIGKILL
    again = shell.start("join", url, "--clients", "2-3", "--state", "state")
    assert serve.ends() == 0, serve.said()
    assert (one.ends(), again.ends()) == (0, 0), one.said() + again.said()
    assert "the run is over" in again.said()
    assert "tiny: fed" in serve.said()
    assert "passed" in serve.said()
    assert "simulated" not in serve.said()
    assert call("run", "tiny.toml", "--out", "memory", *given).exit_code == 0
    there, memory = summary(here / "there"), summary(here / "memory")
    for name in ("model_hash", "accuracy", "loss", "bytes_up", "bytes_down", "participation"):
        assert there[name] == memory[name], name
    assert there.keys() == memory.keys()
    assert there["drops"] == 0
    assert json.loads((here / "there" / "run.json").read_text())["bus"] == "http"


WITHOUT_TIMES = {
    "rounds": ["round", "asked", "merged", "dropped", "frames_up", "cumulative_bytes_up", "merges"],
    "clients": ["client", "asked", "merged", "bytes_down", "bytes_plain_up", "accuracy", "loss"],
    "messages": ["round", "client", "dispatch", "exchange", "kind", "up", "bytes", "bytes_plain", "outcome"],
    "dispatches": ["client", "dispatch", "round", "exchange", "outcome", "version", "staleness"],
    "evaluations": ["round", "client", "accuracy", "loss"],
}
OFTEN = ("--set", "run.checkpoint={ every_rounds = 1, max_share = 1.0 }")


def _has_checkpoint(folder: Path, least: int) -> bool:
    return any(int(file.stem) >= least for file in folder.glob("checkpoints/*.checkpoint"))


# Rounds of fedavg are short, and checkpoints are as far apart as the disk is slow: it needs more of them.
@pytest.mark.parametrize(
    ("given", "rounds"), [(SLOW, 20), (CODED, 60)], ids=["fedme", "fedavg with error feedback"]
)
def test_a_server_that_is_started_again_finds_its_processes(
    given: Sequence[str], rounds: int, shell: Shell, call: Call, here: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given, there = (*given, "--set", f"run.rounds={rounds}"), here / "there"
    command = ("serve", "tiny.toml", "--listen", f"127.0.0.1:{port}", "--out", "there", *given, *OFTEN)
    serve = shell.start(*command)
    serve.says("listening")
    url = f"http://127.0.0.1:{port}"
    joined = [
        shell.start("join", url, "--clients", "0,1"),
        shell.start("join", url, "--clients", "2-3", "--state", "state"),
    ]
    for reached, how in ((4, signal.SIGKILL), (10, signal.SIGINT)):
        serve.waits(partial(_has_checkpoint, there, reached))
        serve.process.send_signal(how)
        assert serve.ends() == (130 if how == signal.SIGINT else -how)
        refused = call("resume", "there")
        assert refused.exit_code == 2
        assert "goes on with it when it is started again" in refused.stderr
        serve = shell.start(*command)
        serve.says("goes on after round ")
    assert serve.ends() == 0, serve.said()
    for one in joined:
        assert one.ends() == 0, one.said()
        assert "was started again" in one.said()
    assert "held, if anything, is lost" not in serve.said()
    assert call("run", "tiny.toml", "--out", "memory", *given).exit_code == 0
    found, memory = summary(there), summary(here / "memory")
    for name in ("model_hash", "accuracy", "loss", "bytes_up", "bytes_down", "participation", "drops"):
        assert found[name] == memory[name], name
    for table, columns in WITHOUT_TIMES.items():
        rows = [
            sorted(
                map(str, zip(*read_columns(here / run / f"{table}.parquet", columns).values(), strict=True))
            )
            for run in ("there", "memory")
        ]
        assert rows[0] == rows[1], table
    assert not (there / "state.json").exists()


def test_an_interrupted_server_leaves_nothing(shell: Shell, here: Path) -> None:
    serve = shell.start("serve", "tiny.toml", "--listen", "127.0.0.1:0")
    url = _address(serve.says("listening"))
    join = shell.start("join", url, "--clients", "0-1")
    join.says("joined")
    for one in (join, serve):
        one.process.send_signal(signal.SIGINT)
        assert one.ends() == 130, one.said()
        assert one.said().endswith("fedsim: interrupted: nothing was left half-written\n")
    assert not (here / "runs").exists()


IMAGES = """
[run]
rounds = 1
[data]
name = "files"
params = { images = "images.npy", labels = "labels.npy" }
[models.linear]
[[fleet]]
count = 4
device = "high"
"""


def test_a_process_with_other_data_is_told_what_differs(shell: Shell, here: Path) -> None:
    (here / "images.toml").write_text(IMAGES)
    for name, first in (("there", 0), ("elsewhere", 1)):
        (here / name).mkdir()
        np.save(
            here / name / "images.npy", np.arange(40 * 16, dtype=np.uint8).reshape(40, 4, 4) % 250 + first
        )
        np.save(here / name / "labels.npy", np.arange(40) % 4)
    shell.environment["FEDSIM_DATA"] = "there"
    serve = shell.start("serve", "images.toml", "--listen", "127.0.0.1:0", "--out", "results", "--verify")
    url = _address(serve.says("listening"))
    other = shell.start("join", url, "--clients", "0-3", "--data", "elsewhere")
    assert other.ends() == 2
    assert "server: samples (40 of float32 both, with other values)." in other.said()
    assert "or FEDSIM_DATA" in other.said()
    join = shell.start("join", url, "--clients", "0-3")
    assert serve.ends() == 0, serve.said()
    assert join.ends() == 0, join.said()
    assert json.loads((here / "results" / "run.json").read_text())["verify"]


def test_run_starts_its_processes_itself(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(place for place in sys.path if place))
    persfl = ("--algorithm", "persfl")
    result = call("run", "tiny.toml", *persfl, "--bus", "http", "--verify", "--out", "there", "--quiet")
    assert result.exit_code == 0, result.output
    assert "12 to 4 of 4 clients: merged 12, dropped 0, rejected 0, late 0" in result.stdout
    assert call("run", "tiny.toml", *persfl, "--out", "memory").exit_code == 0
    assert summary(here / "there")["model_hash"] == summary(here / "memory")["model_hash"]
    for table in ("clients", "dispatches"):
        labels = [
            read_columns(here / run / f"{table}.parquet", ["label"])["label"] for run in ("there", "memory")
        ]
        assert labels[0].tolist() == labels[1].tolist() != []
    assert all(summary(here / "there")["time"][f"{phase}_s"] > 0 for phase in ("download", "compute"))
    there, memory = (
        [line for line in (here / name / "log.jsonl").read_text().splitlines() if '"student chosen"' in line]
        for name in ("there", "memory")
    )
    assert len(there) == len(memory) == 4


def test_faults_of_frames_are_the_same_on_both_buses(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(place for place in sys.path if place))
    faults = [f'{{ kind = "{kind}", probability = 0.25 }}' for kind in ("loss", "corrupt", "duplicate")]
    faults.append('{ kind = "delay", probability = 0.25, delay = "50 ms" }')
    settings = [f"faults=[{', '.join(faults)}]", 'participation.retry={ times = 20, after = "20 ms" }']
    options = [word for setting in settings for word in ("--set", setting)]
    for name, bus in (("memory", ()), ("there", ("--bus", "http"))):
        result = call("run", "tiny.toml", *options, *bus, "--verify", "--out", name, "--quiet")
        assert result.exit_code == 0, result.output
    memory, there = (summary(here / name) for name in ("memory", "there"))
    assert there["model_hash"] == memory["model_hash"]
    assert there["faults"] == memory["faults"]
    assert len(there["faults"]) == 4


def test_a_run_with_tokens_over_tls(shell: Shell, call: Call, here: Path, certify: Any) -> None:
    certificate, key = map(str, certify("server"))
    other = str(certify("other")[0])
    made = call("token", "new", "--clients", "0-3", "--tokens", "tokens")
    secret = made.stdout.strip().splitlines()[-1]
    tls = ("--tls-cert", certificate, "--tls-key", key, "--tokens", "tokens")
    serve = shell.start("serve", "tiny.toml", "--listen", "127.0.0.1:0", "--out", "there", *tls)
    url = _address(serve.says("listening"))
    assert url.startswith("https://")
    shares = ("--clients", "0-3", "--patience", "20 s")
    mistakes = {
        "does not show a certificate that this process trusts": (url, *shares),
        "give the certificate of its authority (ca)": (url, *shares, "--ca", other),
        "encrypts: write https://": (url.replace("https", "http"), *shares),
        "does not know this token": (url, *shares, "--ca", certificate, "--token", secret + "x"),
        "asks for a token": (url, *shares, "--ca", certificate),
    }
    tried = [(said, shell.start("join", *arguments)) for said, arguments in mistakes.items()]
    for said, one in tried:
        assert one.ends() == 2, one.said()
        assert said in one.said()
        assert "Traceback" not in one.said()
    shell.environment["FEDSIM_TOKEN"] = secret
    join = shell.start("join", url, *shares, "--ca", certificate)
    assert serve.ends() == 0, serve.said()
    assert "may come back" not in serve.said()
    assert "has left" in serve.said()
    assert join.ends() == 0, join.said()
    assert summary(here / "there")["participation"]["merged"] == 8


def test_encryption_where_there_is_none_is_told(shell: Shell) -> None:
    serve = shell.start("serve", "tiny.toml", "--listen", "127.0.0.1:0")
    url = _address(serve.says("listening")).replace("http", "https")
    join = shell.start("join", url, "--clients", "0-3", "--patience", "20 s")
    assert join.ends() == 2
    assert "does not encrypt: write http://" in join.said()
    serve.process.send_signal(signal.SIGINT)
    assert serve.ends() == 130
