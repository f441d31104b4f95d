"""The past of a server that is started again: told from records, with what it remembers beside."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from io import BytesIO
from typing import Any

import msgpack
import pytest

from fedsim.bus import Ledger
from fedsim.clock import Trace
from fedsim.clock.event_trace import stored_records
from fedsim.network.fault_settings import FaultConfig, RetryConfig
from fedsim.plugins import load
from fedsim.report.checkpoints import pack_snapshot
from fedsim.runtime.past.server_past import STARTED_AGAIN, ServerPast, ServerSnapshot
from fedsim.runtime.policies.pacing.asynchronous import Buffered, BufferedConfig
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import kinds_of
from fedsim.runtime.state_encoding import Reader, StateLimits
from tests.runtime.sockets.conftest import CLIENTS, over_http, parts

ROUNDS = 4


class Keeping:
    """Keeps what a server remembers after each round, packed, and how far the trace had come."""

    journal: Any = None

    def __init__(self, classes: Collection[type]) -> None:
        self.classes = classes
        self.sink = BytesIO()
        self.trace = Trace(self.sink, keep=True)
        self.kept: list[tuple[Any, list[Any], bytes, int]] = []
        self.snapshots: list[Any] = []

    def end_round(self, rounds: int, snapshot: Callable[[], Any], initial: Any) -> bool:
        alive = snapshot()
        self.snapshots.append(alive)
        tree, arrays = pack_snapshot(alive, self.classes, initial.names)
        at_ns = self.trace.kept[-1][0]
        self.kept.append((tree, [array.copy() for array in arrays], self.sink.getvalue(), at_ns))
        return True

    def past(self, number: int) -> tuple[ServerPast, list[str]]:
        tree, arrays, written, at_ns = self.kept[number]
        told: list[str] = []

        def load(initial: Any) -> ServerSnapshot:
            reader = Reader(arrays, self.classes, StateLimits(), initial, is_trusted=True)
            found: ServerSnapshot = reader.value(
                msgpack.unpackb(tree, use_list=False, strict_map_key=False), "run"
            )
            return found

        records = list(stored_records(BytesIO(written)))
        return ServerPast(load, records, at_ns, lambda: told.append("end")), told


def first(make: Callable[[], Any]) -> tuple[RunResult, Keeping]:
    made = make()
    keeping = Keeping(ServerSnapshot.classes(made, kinds_of(made)))
    result, _ = over_http(make, ["0-3"], trace=keeping.trace, keeper=keeping)
    return result, keeping


STRUCK: dict[str, Any] = {
    "faults": [
        FaultConfig.model_validate({"kind": kind, "probability": 0.3}) for kind in ("loss", "duplicate")
    ],
    "retry": RetryConfig.model_validate({"times": 30, "after": "1 s"}),
}


@pytest.mark.parametrize("number", range(ROUNDS - 1))
@pytest.mark.parametrize("changes", [{}, STRUCK], ids=["", "with faults"])
def test_a_server_ends_as_if_it_had_never_stopped(number: int, changes: dict[str, Any]) -> None:
    def make() -> Any:
        return parts("fedavg", rounds=ROUNDS, **changes)

    whole, keeping = first(make)
    past, told = keeping.past(number)
    trace, count = Trace(keep=True), len(past.records)
    result, _ = over_http(make, ["0-3"], trace=trace, past=past)
    assert told == ["end"]
    assert result.model_hash == whole.model_hash
    assert result.totals == whole.totals
    assert {name: counts.tolist() for name, counts in result.by_client.items()} == {
        name: counts.tolist() for name, counts in whole.by_client.items()
    }
    # The past is told as it was, with its times, and the rounds after it are numbered on.
    assert trace.kept[:count] == keeping.trace.kept[:count]
    assert [row.ended_at_s for row in result.rounds[: number + 1]] == [
        row.ended_at_s for row in whole.rounds[: number + 1]
    ]
    assert [row.round for row in result.rounds] == [row.round for row in whole.rounds]
    assert [row.accuracy is None for row in result.rounds] == [row.accuracy is None for row in whole.rounds]
    assert all(record[0] >= past.at_ns for record in trace.kept[count:])
    assert past.firsts == Counter(record[2] for record in trace.kept[:count] if record[1] == "dispatch")
    assert not result.drops
    assert result.faults == whole.faults
    assert set(result.faults) == {one.kind for one in changes.get("faults", ())}
    for name in ("arrivals", "outcome"):
        assert Counter(result.ledger.columns()[name].tolist()) == Counter(
            whole.ledger.columns()[name].tolist()
        )


@pytest.mark.parametrize("name", ["oort", "least_available"])
def test_what_a_selector_remembers_goes_on(name: str) -> None:
    def make() -> Any:
        plugin: Any = load("fedsim.runtime.policies.selectors", name)
        return parts("fedavg", rounds=ROUNDS, selector=plugin(plugin.Config()))

    _, keeping = first(make)
    past, _ = keeping.past(1)
    again = Keeping(keeping.classes)
    result, _ = over_http(make, ["0-3"], trace=again.trace, past=past, keeper=again)
    assert result.num_rounds == ROUNDS

    def remembered(kept: Keeping, number: int) -> Any:
        (memory,) = kept.snapshots[number].values["selection"]["memory"].values()
        return memory

    before, after = remembered(keeping, 1), remembered(again, 0)
    assert [one.round for one in (before, after)] == [2, 3]
    assert remembered(keeping, 2).round == 3
    if name == "oort":
        assert after.achieved[:-1] == before.achieved
    else:
        assert after.began_at_s > before.began_at_s


def test_dispatches_that_were_open_count_as_dropped() -> None:
    pacing = Buffered(BufferedConfig(buffer=1, concurrency=CLIENTS))

    def make() -> Any:
        return parts("fedavg", rounds=ROUNDS, pacing=pacing)

    _, keeping = first(make)
    past, _ = keeping.past(1)
    asked = {(record[2], record[3]) for kind, record in past.records if kind.name == "dispatch"}
    merged = {
        key
        for kind, record in past.records
        if kind.name == "merge"
        for key in zip(record[5], record[6], strict=True)
    }
    result, _ = over_http(make, ["0-3"], trace=Trace(keep=True), past=past)
    assert result.drops[STARTED_AGAIN] == len(asked - merged) > 0
    assert result.rounds[2].drops[STARTED_AGAIN] == len(asked - merged)
    assert not result.ledger.outcomes()["in_flight"]
    assert result.num_rounds == ROUNDS


def test_who_was_merged_before_and_does_not_come_back_is_missed() -> None:
    def make() -> Any:
        return parts("local", rounds=ROUNDS, clients_per_round=CLIENTS)

    _, keeping = first(make)
    past, _ = keeping.past(ROUNDS - 2)
    result, world = over_http(make, ["0-1"], wait_s=1.0, trace=Trace(keep=True), past=past)
    assert {line["client"] for line in world.log.of("evaluated as it joined")} == {2, 3}
    assert result.drops == {"timeout": 2}


def test_frames_that_were_under_way_are_lost() -> None:
    _, keeping = first(lambda: parts("fedavg", rounds=ROUNDS))
    past, _ = keeping.past(0)
    # The run stops right after a frame was put on its link.
    last = max(place for place, (kind, _) in enumerate(past.records) if kind.name == "transfer_start")
    cut = ServerPast(past.load, past.records[: last + 1], past.at_ns, past.end)
    ledger, trace = Ledger(), Trace(keep=True)

    async def tell() -> None:
        lose = cut.tell(trace, ledger)
        before = ledger.outcomes()["in_flight"]
        lose()
        assert ledger.outcomes()["in_flight"] == 0 < before == ledger.outcomes()["lost"]

    asyncio.run(tell())
    ledger.check()
    assert trace.kept[-1][1] == "transfer_end"
    assert trace.kept[-1][-2:] == ("lost", STARTED_AGAIN)
