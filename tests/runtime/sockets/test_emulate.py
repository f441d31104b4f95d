"""The run of the simulation, on a real clock and over real sockets: the same fates, models and bytes."""

import asyncio
import tomllib
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from fedsim.bus.http.messages import Entry, ProtocolError
from fedsim.clock import Trace
from fedsim.errors import RunError, UserError
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run
from fedsim.runtime.sockets import emulate as emulating_module
from fedsim.runtime.sockets.emulate import Lateness, RemoteClients, check_emulation, rounded
from fedsim.scenario import Scenario, build
from tests.bus.http.conftest import Log
from tests.runtime.sockets.emulating import Emulated, emulated

SCENARIO = """
run = { seed = 3, rounds = 2 }
data = { name = "digits", limit = 240, global_test = 0.1, public.size = 20 }
training = { lr = 0.1, batch_size = 16 }
models.linear = {}
engine.workers = 1
evaluation.every = 2
network.model = "fluid"
server = { up = "20 Mbit/s", down = "20 Mbit/s" }
[[fleet]]
count = 4
device = "high"
up = "4 Mbit/s"
down = "8 Mbit/s"
latency = "20 ms"
overhead = "500 ms"
variation = 0.5
"""


def parts(more: str = "", algorithm: str = "fedavg", **changes: Any) -> Parts:
    scenario = tomllib.loads(SCENARIO + more)
    scenario["algorithm"] = {"name": algorithm}
    return replace(build(Scenario.model_validate(scenario)), **changes)


@pytest.fixture(autouse=True)
def _nobody_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long the first time has been done by other tests, or makes the host late, which is no error."""
    for module in ("emulate", "join"):
        monkeypatch.setattr(f"fedsim.runtime.sockets.{module}.warm_up", lambda parts: None)


def payload(result: RunResult) -> Counter[Any]:
    columns = result.ledger.columns()
    names = ("client", "dispatch", "up", "kind", "bytes", "attempt")
    return Counter(zip(*(columns[name].tolist() for name in names if name in columns), strict=True))


def both(more: str = "", speed_up: float = 20.0, **changes: Any) -> tuple[RunResult, RunResult, Emulated]:
    """Return a simulation and an emulation, which have the same models and bytes."""
    here = run(parts(more, **changes), trace=Trace(keep=True))
    there, world = emulated(lambda: parts(more, **changes), speed_up=speed_up)
    assert world.errors == []
    assert not world.server.rejected
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)
    assert there.totals == here.totals
    return here, there, world


@pytest.mark.parametrize("algorithm", ["fedavg", "fedmd", pytest.param("scaffold", marks=pytest.mark.slow)])
def test_models_and_bytes_are_those_of_the_simulation(algorithm: str) -> None:
    here, there, world = both(algorithm=algorithm, verify=True)
    assert [(row.asked, row.merged) for row in there.rounds] == [
        (row.asked, row.merged) for row in here.rounds
    ]
    assert there.best == here.best
    assert len(world.server._records._ledger) == 0  # another bus enters the frames
    said = there.emulation
    assert said is not None
    assert said["num_dispatches"] == here.by_client["asked"].sum()
    assert said["speed_up"] == 20
    assert here.emulation is None
    # Nothing is faster than its model.
    for row, its in zip(here.rounds, there.rounds, strict=True):
        assert its.ended_at_s - its.began_at_s >= (row.ended_at_s - row.began_at_s) * (1 - 1e-3)


def test_what_clients_give_up_and_when_they_are_away_is_that_of_the_simulation() -> None:
    # Each dispatch is over seconds of emulated time after or before its client gives up.
    drops = 'drop_out = "600 /h"\n'
    here = run(parts(drops, rounds=4))
    there, world = emulated(lambda: parts(drops, rounds=4))
    assert world.errors == []
    assert here.drops
    assert there.drops == here.drops
    assert there.by_client["merged"].tolist() == here.by_client["merged"].tolist()
    assert there.model_hash == here.model_hash


FAULTS = """
[participation.retry]
times = 9
after = "300 ms"
[[faults]]
kind = "loss"
probability = 0.3
[[faults]]
kind = "crash"
probability = 0.2
"""


def test_faults_from_the_same_seed_strike_the_same_frames_and_clients() -> None:
    here, there, _ = both(FAULTS, rounds=4)
    assert there.faults == here.faults
    assert set(here.faults) == {"loss", "crash"}
    assert there.drops == here.drops
    assert there.ledger.outcomes() == here.ledger.outcomes()
    assert there.by_client["merged"].tolist() == here.by_client["merged"].tolist()


def test_a_process_that_leaves_ends_the_run() -> None:
    async def leave(world: Emulated) -> None:
        while not any(record[1] == "transfer_start" for record in world.trace.kept):
            await asyncio.sleep(0.005)
        world.server._hosts[1].abort()
        world.server._hosts[1].channel = None
        world.server._changed()

    message = r"the process of client [13] is gone, and an emulation needs all of them"
    with pytest.raises(RunError, match=message):
        emulated(lambda: parts(rounds=200), speed_up=2.0, during=leave)


def test_clients_that_do_not_come_end_the_run() -> None:
    message = (
        r"2 clients have not come within 1 s, such as client 1, and an emulation needs all: start more with"
    )
    with pytest.raises(RunError, match=message):
        emulated(parts, shares=["0,2"], wait_s=1.0)


# What cannot be emulated


def test_what_has_no_links_or_edges_is_refused() -> None:
    with pytest.raises(UserError, match=r"network\.model: 'none' has no links that could be emulated"):
        check_emulation(parts().__class__(**{**vars_of(parts()), "network": none()}), 1.0)
    with pytest.raises(UserError, match=r"\[\[edge\]\]: an emulation has no edges: remove them, or simulate"):
        check_emulation(replace(parts(), edges=object()), 1.0)  # type: ignore[arg-type]
    for speed_up in (0, -1, 2e6, float("nan")):
        with pytest.raises(UserError, match=r"a speed-up of .*: write a number greater than 0"):
            check_emulation(parts(), speed_up)
    check_emulation(parts(), 1e6)


def test_a_speed_up_that_the_host_cannot_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # 4 MiB in 0.5 s or so are less than the 8 Mbit/s of a client's downlink, 1000 times.
    probe = emulating_module.PROBE_BYTES

    def slow(client: Any) -> None:
        async def answer(number: int, question: bytes) -> bytes:
            assert len(question) == probe
            await asyncio.sleep(0.1)
            return b""

        client.connect, connect = _with_prober(client, answer), client.connect
        client._connect = connect

    message = r"a speed-up of 1000: the fastest link would carry 8 Gbit/s, and this host sends .* to a client"
    with pytest.raises(UserError, match=message + r" process: give a speed-up of \d+ or less"):
        emulated(parts, speed_up=1000.0, change=slow)


def test_speeds_are_given_to_one_digit() -> None:
    assert [rounded(number) for number in (0.0123, 0.96, 1.5, 37, 2500)] == ["0.01", "1", "2", "40", "2000"]
