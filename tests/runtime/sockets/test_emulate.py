"""The run of the simulation, on a real clock and over real sockets: the same fates, models and bytes."""

import asyncio
import tomllib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.bus import Delivery, Header
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Entry, ProtocolError
from fedsim.clock import Trace, now_ns
from fedsim.engine.cost import Effort
from fedsim.engine.jobs import PastJob
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.errors import RunError, UserError
from fedsim.models.flops import Operations
from fedsim.network.none import PLUGIN as NONE
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import kinds_of, open_engine, open_engine_of, run
from fedsim.runtime.sockets import emulate as emulating_module
from fedsim.runtime.sockets.emulate import Lateness, RemoteClients, check_emulation, rounded
from fedsim.scenario import Scenario, build
from fedsim.wire import SERVER
from tests.bus.http.conftest import Log
from tests.runtime.sockets.emulating import Emulated, emulated

HOURS = TimedJob(cast(Any, PastJob("fit")), Effort.of([(1, Operations(1e18))]), 0.0)
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


def parts(more: str = "", algorithm: str = "fedavg", seed: int = 3, **changes: Any) -> Parts:
    scenario = tomllib.loads(SCENARIO + more)
    scenario["run"]["seed"] = seed
    scenario["algorithm"] = {"name": algorithm}
    return replace(build(Scenario.model_validate(scenario)), **changes)


@pytest.fixture(autouse=True)
def _nobody_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long the first time makes the host late, which is no error here."""
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


def on_time(there: RunResult) -> RunResult:
    """Return an emulation, if its host was not late: else clients may have been away in other moments."""
    if there.emulation is None or there.emulation["num_late"]:
        pytest.skip("the host was late")
    return there


@pytest.mark.slow
def test_what_clients_give_up_is_that_of_the_simulation() -> None:
    # With this seed, and up to a fifth longer jobs, the same clients give up.
    drops = 'drop_out = "3600 /h"\n[participation]\nclient_timeout = "4 s"\n'
    here = run(parts(drops, seed=0, rounds=3))
    there, world = emulated(lambda: parts(drops, seed=0, rounds=3), speed_up=4.0)
    assert world.errors == []
    assert here.drops
    on_time(there)
    assert there.drops == here.drops
    assert there.by_client["merged"].tolist() == here.by_client["merged"].tolist()
    assert there.model_hash == here.model_hash


# Clients wait for each other, and a client that is away in the middle of a dispatch resumes it.
ABSENCES = """
availability = { name = "duty_cycle", params = { period = "2 s", on_share = 0.5 } }
[participation]
client_timeout = "1 h"
on_leave = "resume"
"""


@pytest.mark.slow
def test_work_and_frames_of_clients_that_leave_go_on_when_they_are_back() -> None:
    trace = Trace(keep=True)
    here = run(parts(ABSENCES, rounds=3), trace=trace)
    assert any(record[1] == "leave" for record in trace.kept)
    there, world = emulated(lambda: parts(ABSENCES, rounds=3), speed_up=4.0)
    assert any(record[1] == "leave" for record in world.trace.kept)
    assert not there.drops
    assert on_time(there).model_hash == here.model_hash


LOSSES = """
[participation]
client_timeout = "1 h"
[participation.retry]
times = 9
after = "300 ms"
[[faults]]
kind = "loss"
probability = 0.3
"""


def test_losses_from_the_same_seed_strike_the_same_frames() -> None:
    here, there, _ = both(LOSSES, rounds=3)
    assert there.faults == here.faults
    assert set(here.faults) == {"loss"}
    assert there.ledger.outcomes() == here.ledger.outcomes()


CRASHES = """
[participation]
client_timeout = "4 s"
[[faults]]
kind = "crash"
probability = 0.4
at = "1.2 s"
every = "2 s"
keeps_state = false
"""


@pytest.mark.slow
def test_crashes_strike_the_same_clients() -> None:
    here = run(parts(CRASHES, rounds=3))
    there, world = emulated(lambda: parts(CRASHES, rounds=3), speed_up=4.0)
    assert world.errors == []
    assert set(here.faults) == {"crash"}
    assert on_time(there).faults == here.faults
    assert there.drops == here.drops
    assert there.by_client["merged"].tolist() == here.by_client["merged"].tolist()


def test_a_process_that_leaves_ends_the_run() -> None:
    async def leave(world: Emulated) -> None:
        started = asyncio.Event()
        world.trace.listen({"transfer_start": lambda *_: started.set()})
        await started.wait()
        world.stop("1,3")

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
        check_emulation(parts(network=NONE(NONE.Config())), 1.0)
    with pytest.raises(UserError, match=r"\[\[edge\]\]: an emulation has no edges: remove them, or simulate"):
        check_emulation(replace(parts(), edges=object()), 1.0)  # type: ignore[arg-type]
    for speed_up in (0, -1, 2e6, float("nan")):
        with pytest.raises(UserError, match=r"a speed-up of .*: write a number above 0, at most 1,000,000"):
            check_emulation(parts(), speed_up)
    check_emulation(parts(), 1e6)


def test_a_speed_up_that_the_host_cannot_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # So little crosses loopback in no less than some microseconds, as slowly as on a bad line.
    monkeypatch.setattr(emulating_module, "PROBE_BYTES", 4)
    message = r"a speed-up of 1000: the fastest link would carry 8 Gbit/s, and this host sends .* to a client"
    with pytest.raises(UserError, match=message + r" process: give a speed-up of [0-9.e-]+ or less"):
        emulated(parts, speed_up=1000.0)


def test_what_hooks_of_the_server_take_makes_the_next_dispatches_late() -> None:
    late = Lateness(1.0)
    late.add_of_server(30_000_000)  # a merge
    late.add_of_server(20_000_000)  # and an instruction
    late.begin(1_000_000_000, 0, 0)
    late.begin(1_000_000_000, 1, 0)
    late.add_of_server(-5)
    late.begin(3_000_000_000, 2, 0)
    for client, at_ns in ((0, 1_450_000_000), (1, 1_950_000_000), (2, 4_000_000_000)):
        late.end(at_ns, client, 0)
    # Two begin 50 ms late, and none takes longer than it should.
    assert (late.num_late, late.worst, late.late_s) == pytest.approx((0, 0.0, 0.1))


def test_a_hook_that_is_cancelled_leaves_no_work_of_the_server_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = []

    async def observe_all(engine: Any, request: JobRequest) -> list[Any]:
        try:
            await clock.sleep_for(1e6)
            return []
        finally:
            ended.append(now_ns())

    monkeypatch.setattr(emulating_module._ServerEngine, "observe_all", observe_all)

    async def main() -> None:
        made = parts()
        engine = open_engine_of(emulating_module._ServerEngine, made, Trace())
        engine.device = made.fleet.server
        try:
            request = JobRequest(SERVER, -1, [HOURS], lambda: "the server")
            asking = asyncio.ensure_future(engine.run(request))
            await clock.sleep_for(2)
            asking.cancel()
            await clock.sleep_for(1)
            assert asking.cancelled()
            assert ended == [2_000_000_000]
        finally:
            engine.close()

    clock.run(main())


def test_speeds_are_given_to_one_digit() -> None:
    assert [rounded(number) for number in (0.0123, 0.96, 1.5, 37, 2500)] == ["0.01", "1", "2", "40", "2000"]


# What processes say


class Fake:
    """In place of connections and of the bus."""

    limits = HttpLimits()

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.sent: list[Any] = []
        self.clients = self

    def tell(self, *said: Any, **_: Any) -> None:
        self.said.append(said)

    def send(self, header: Header, packed: Any) -> Any:
        self.sent.append((header, packed))
        return self

    def then(self, call: Any) -> None:
        call()


def hearing(use: Any) -> None:
    """Give a function, in virtual time, the server's side of clients, of whom client 1 is at dispatch 2."""

    async def main() -> None:
        made, fake = parts(), Fake()
        engine = open_engine(made, Trace())
        try:
            clients: Any = RemoteClients(fake, engine, kinds_of(made), Lateness(1.0), Log())  # type: ignore[arg-type]
            clients.bus = fake
            clients.take(Delivery(Header(SERVER, 1, 1, "train", 2, 0, -1), None))
            fake.said.clear()
            await use(clients, fake)
            clients.abandon(1)
        finally:
            engine.close()

    clock.run(main())


def says(*values: Any, body: bytes | None = None) -> Entry:
    return Entry("m", values, None if body is None else memoryview(body))


def test_a_dispatch_that_waits_behind_another_takes_its_whole_time() -> None:
    async def use(clients: Any, fake: Fake) -> None:
        jobs = msgpack.packb([("fit", 1.0, 5.0)])
        await clock.sleep_until(1)
        clients.take(Delivery(Header(SERVER, 1, 1, "train", 3, 1, -1), None))
        clients.hear(says("jobs", 1, 2, 0, 0, body=jobs))
        await clock.sleep_until(5.5)  # half a second late
        clients.hear(says("reply", 1, 2, 0, 0, body=msgpack.packb((None, None))))
        clients.hear(says("jobs", 1, 3, 0, 0, body=jobs))
        await clock.sleep_until(20)
        went = {dispatch: at_ns / 1e9 for what, _, dispatch, at_ns, _ in fake.said if what == "go"}
        assert went == {2: 5.0, 3: 10.5}

    hearing(use)


HOSTILE = {
    "an unknown word": says("dance", 1, 2, 0, 0),
    "no jobs": says("jobs", 1, 2, 0, 0, body=msgpack.packb([])),
    "jobs without a body": says("jobs", 1, 2, 0, 0),
    "jobs that are no msgpack": says("jobs", 1, 2, 0, 0, body=b"\xc1"),
    "jobs of too few values": says("jobs", 1, 2, 0, 0, body=msgpack.packb([("fit", 1.0)])),
    "a duration that is no number": says("jobs", 1, 2, 0, 0, body=msgpack.packb([("fit", 1.0, "x")])),
    **{
        f"a duration of {seconds}": says("jobs", 1, 2, 0, 0, body=msgpack.packb([("fit", 1.0, seconds)]))
        for seconds in (-1.0, float("nan"), float("inf"), 1e305)
    },
    "jobs while its jobs are running": says("jobs", 1, 4, 0, 0, body=msgpack.packb([("fit", 1.0, 5.0)])),
    "a reply while its jobs are running": says("reply", 1, 4, 0, 0, body=msgpack.packb((None, None))),
    "a reply without a body": says("reply", 1, 2, 0, 0),
    "a reply of one value": says("reply", 1, 2, 0, 0, body=msgpack.packb(1)),
    "a kind that is none": says("reply", 1, 2, 0, 9, body=msgpack.packb((("dance", 1, False, None), None))),
    "a kind that has no hash": says("reply", 1, 2, 0, 9, body=msgpack.packb((([], 1, False, None), None))),
    "a reply that is too long": says(
        "reply", 1, 2, 0, 2**50, body=msgpack.packb((("update", 1, False, None), None))
    ),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_what_makes_no_sense_is_a_protocol_error(why: str) -> None:
    async def use(clients: RemoteClients, fake: Fake) -> None:
        clients.take(Delivery(Header(SERVER, 1, 1, "train", 4, 1, -1), None))
        clients.hear(says("jobs", 1, 4, 0, 0, body=msgpack.packb([("fit", 1.0, 5.0)])))
        fake.said.clear()
        with pytest.raises(ProtocolError, match="of client 1 makes no sense"):
            clients.hear(HOSTILE[why])
        await clock.sleep_for(6)
        assert fake.said == [("go", 1, 4, 5_000_000_000, 0)]

    hearing(use)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**40)
    | st.floats()
    | st.text(max_size=3)
    | st.just("update"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["had", "jobs", "reply", "piece"]),
            st.integers(1, 2),
            st.integers(1, 3),
            st.sampled_from([0, 1, 1000, 2**53]),
            st.sampled_from([0, 1, 1000, 2**53]),
            VALUES.map(msgpack.packb) | st.binary(max_size=20) | st.none(),
        ),
        max_size=5,
    )
)
def test_whatever_a_process_says_is_taken_or_a_protocol_error(said: list[Any]) -> None:
    async def use(clients: RemoteClients, fake: Fake) -> None:
        for *values, body in said:
            with suppress(ProtocolError):
                clients.hear(says(*values, body=body))
        # It has done nothing but to answer its own dispatch, once at most, and others are served as before.
        assert {header.client for header, _ in fake.sent} <= {1}
        assert {header.dispatch for header, _ in fake.sent} <= {2}
        assert len(fake.sent) <= 1
        fake.sent.clear()
        clients.take(Delivery(Header(SERVER, 3, 1, "train", 7, 0, -1), None))
        clients.hear(says("reply", 3, 7, 0, 0, body=msgpack.packb((None, None))))
        assert [header.dispatch for header, _ in fake.sent] == [7]

    hearing(use)


def test_what_was_given_up_meanwhile_is_not_minded() -> None:
    async def use(clients: RemoteClients, fake: Fake) -> None:
        clients.abandon(1)
        assert fake.said == [("stop", 1, 0, 0, 0)]
        jobs = msgpack.packb([("fit", 1.0, 1.0)])
        clients.hear(says("jobs", 1, 2, 0, 0, body=jobs))
        clients.hear(says("reply", 1, 2, 0, 9, body=b"whatever"))
        clients.hear(says("piece", 1, 2, 0, 9, body=b"123456789"))
        clients.hear(says("had", 1, 2, 0, 0))
        assert (fake.sent, len(fake.said)) == ([], 1)

    hearing(use)


def test_jobs_last_as_long_as_their_device_takes_from_the_dispatchs_arrival_on() -> None:
    async def use(clients: RemoteClients, fake: Fake) -> None:
        await clock.sleep_for(0.25)  # the process has begun so long ago
        clients.hear(says("jobs", 1, 2, 0, 0, body=msgpack.packb([("fit", 1e6, 1.0), ("call", 1.0, 0.5)])))
        await clock.sleep_for(1.24)
        assert fake.said == []
        await clock.sleep_for(0.02)
        assert fake.said == [("go", 1, 2, 1_500_000_000, 0)]

    hearing(use)


def test_lateness_counts_dispatches_that_took_longer_than_their_model() -> None:
    async def main() -> Lateness:
        late = Lateness(4.0)
        for dispatch in range(4):
            late.begin(now_ns(), 0, dispatch)
        late.add((0, 1), 40_000_000)
        late.add((0, 2), 60_000_000)
        late.add((0, 3), -10)
        late.end(now_ns(), 0, 0)  # in no time
        await clock.sleep_for(1)
        for dispatch in (1, 2, 3, 3):  # the last one comes after its drop
            late.end(now_ns(), 0, dispatch)
        return late

    figures = clock.run(main()).figures()
    assert figures == {
        "speed_up": 4.0,
        "num_dispatches": 4,
        "num_late": 1,
        "worst": 0.06,
        "late_s": pytest.approx(0.1),
    }
