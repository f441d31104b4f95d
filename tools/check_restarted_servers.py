"""Kill servers of runs over sockets, start them again, and compare the results with those of whole runs.

Each run has one algorithm, a server and two client processes, of which one has a state folder; half of the
runs have faults of frames. The server is killed up to three times by SIGKILL, at random instants of real
time, and started again with the same command; now and then the process with the state folder is killed too.
Each run is compared with the run in virtual time: the hash of the models, and the tables without real
times::

    python tools/check_restarted_servers.py [--seeds 0-19] [--workers 2]
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_seeds import check, options

from fedsim.fuzz.examine import Verdict
from fedsim.plugins import available
from fedsim.report.read_parquet import read_columns
from fedsim.rng import Key

SCENARIO = """
run = { name = "killed", seed = 3, rounds = 16, checkpoint = { every_rounds = 2, max_share = 1.0 } }
data = { name = "digits", limit = 240, global_test = 0.1, public.size = 20 }
training = { lr = 0.1, batch_size = 16, momentum = 0.9, keep_optimiser = true }
participation = { clients_per_round = 3, client_timeout = "600 s" }
evaluation.every = 4
network.model = "none"
models.mlp.params.hidden = [8]
[[fleet]]
count = 4
device = "high"
"""
CODED = 'codec.up.models = { chain = ["delta", "topk", "int8"], error_feedback = true, least = "1 B" }\n'
FAULTS = """
[[faults]]
kind = "loss"
probability = 0.2
[[faults]]
kind = "duplicate"
probability = 0.3
[[faults]]
kind = "delay"
probability = 0.3
delay = "200 ms"
"""
RETRY = '"600 s", retry = { times = 50, after = "100 ms" }'
MAX_KILLS = 3
MAX_S = 300.0
"""Real time for one run."""
LONGEST_S = 12.0
"""Real time, from the start of a server on, in which it is killed."""
TABLES = {
    "rounds": ["round", "asked", "merged", "dropped", "frames_up", "cumulative_bytes_up", "merges"],
    "messages": ["round", "client", "dispatch", "exchange", "kind", "up", "bytes", "bytes_plain", "outcome"],
    "dispatches": ["client", "dispatch", "round", "exchange", "outcome", "version", "staleness"],
    "evaluations": ["round", "client", "accuracy", "loss"],
}
"""Columns that no real time is in."""


class Processes:
    """Processes of fedsim in a folder; ended at the end of the block."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *raised: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command."""
        output = (self._place / f"output{len(self._started)}").open("wb")
        with output:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedsim", *arguments],
                cwd=self._place,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def said(self) -> str:
        """Return what all have said."""
        outputs = [self._place / f"output{number}" for number in range(len(self._started))]
        return "\n".join(output.read_text()[-2000:] for output in outputs)


def examine(seed: int) -> Verdict:
    """Return the verdict on a seed."""
    names = [found.name for found in available("fedsim.algorithms")]
    draws = Key.root(seed).child("servers").numpy()
    name = names[seed % len(names)]
    with tempfile.TemporaryDirectory(prefix="fedsim-server-") as folder, Processes(Path(folder)) as processes:
        place = Path(folder)
        codec = CODED if draws.random() < 0.5 else ""
        scenario = f'algorithm.name = "{name}"\n{codec}{SCENARIO}'
        if draws.random() < 0.5:
            scenario = scenario.replace('"600 s"', RETRY) + FAULTS
        (place / "killed.toml").write_text(scenario)
        whole = processes.start("run", "killed.toml", "--out", "whole")
        if whole.wait(MAX_S) != 0:  # such as with codecs that do not suit the algorithm
            return Verdict("refused", (), f"{name}: {processes.said().strip()}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = "serve", "killed.toml", "--listen", f"127.0.0.1:{port}", "--out", "killed"
        join, kept = ("join", f"http://127.0.0.1:{port}", "--clients"), ("2-3", "--state", "state")
        server, stays, restarts = (processes.start(*one) for one in (command, (*join, "0-1"), (*join, *kept)))
        num_kills = 0
        for _ in range(MAX_KILLS):
            try:
                server.wait(draws.uniform(3.0, LONGEST_S))
                break
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
                num_kills += 1
            if draws.random() < 0.3:
                restarts.kill()
                restarts = processes.start(*join, *kept)
            server = processes.start(*command)
        try:
            ends = [process.wait(MAX_S) for process in (server, stays, restarts)]
        except subprocess.TimeoutExpired:
            ends = [-1]
        faults = tuple(_differences(place)) if not any(ends) else (f"{ends}: {processes.said()}",)
    return Verdict("failed" if faults else "finished", faults, f"{name}, killed {num_kills} times")


def _differences(place: Path) -> list[str]:
    whole, killed = (json.loads((place / run / "summary.json").read_text()) for run in ("whole", "killed"))
    found = [name for name in ("model_hash", "accuracy", "drops", "rounds") if whole[name] != killed[name]]
    for table, columns in TABLES.items():
        rows = [
            sorted(
                map(str, zip(*read_columns(place / run / f"{table}.parquet", columns).values(), strict=True))
            )
            for run in ("whole", "killed")
        ]
        if rows[0] != rows[1]:
            found.append(table)
    return found


def main() -> int:
    """Check all seeds; return the exit status."""
    arguments = options(__doc__).parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(place for place in sys.path if place)
    began_s = time.monotonic()
    with ThreadPoolExecutor(arguments.workers) as pool:
        status = check(examine, arguments.seeds, pool)
    print(f"{time.monotonic() - began_s:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
