"""Runs that go on from the end of each of their rounds end as the run that was never interrupted."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import msgpack
import pytest

from fedsim.clock import Trace
from fedsim.clock.event_trace import stored_records
from fedsim.errors import RunError
from fedsim.params import Array
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.journal import AnySnapshot, Journal
from fedsim.runtime.past.past_work import PastWork
from fedsim.runtime.past.repeated_hooks import Past
from fedsim.runtime.past.snapshot import Snapshot
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import kinds_of, run
from fedsim.runtime.start_values import StartValues
from fedsim.runtime.state_encoding import Reader, StateLimits, Writer
from fedsim.scenario import build, load_scenario

LIMITS = StateLimits()

TINY: dict[str, Any] = {
    "run": {"rounds": 4},
    "data": {"name": "digits", "limit": 300, "public": {"size": 40}, "split": [0.6, 0.2, 0.2]},
    "models": {"mlp": {"params": {"hidden": [8]}}, "linear": {}},
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.1, "batch_size": 8, "epochs": 1},
    "fleet": [{"count": 6, "device": "low", "models": {"mlp": 1}}],
    "participation": {"clients_per_round": 3},
    "evaluation": {"every": 2},
}
BUFFERED = {"name": "buffered", "params": {"concurrency": 4, "buffer": 2}}
LEAVING = [
    {
        "count": 6,
        "device": "low",
        "models": {"mlp": 1},
        "availability": {"name": "renewal", "params": {"on": "2 s", "off": "1 s"}},
    }
]


FAULTS = [
    {"kind": "loss", "probability": 0.2},
    {"kind": "delay", "probability": 0.3, "delay": "2 s"},
    {"kind": "duplicate", "probability": 0.3},
    {"kind": "corrupt", "probability": 0.1},
    {"kind": "partition", "at": "1 s", "for": "500 ms", "every": "4 s"},
]
CRASHES = [{"kind": "crash", "at": "2 s", "every": "3 s", "probability": 0.4, "keeps_state": False}]
SLOW = [
    {"kind": "slow", "factor": 3, "at": "1 s", "for": "700 ms", "every": "1 s", "probability": 0.5},
    {"kind": "slow", "factor": 1.7, "at": "2 s"},
]


@dataclass(frozen=True)
class Kept:
    """What is left of a run after a round."""

    rounds: int
    trace: bytes
    journal: bytes
    tree: bytes
    arrays: list[Array]

    def past(self, parts: Parts) -> Past:
        kinds = kinds_of(parts)

        def load(initial: Any) -> Snapshot:
            tree = msgpack.unpackb(self.tree, use_list=False, strict_map_key=False)
            reader = Reader(self.arrays, Snapshot.classes(parts, kinds), LIMITS, initial, is_trusted=True)
            snapshot: Snapshot = reader.value(tree, "run")
            return snapshot

        work = PastWork(stored_records(BytesIO(self.trace)))
        entries = list(msgpack.Unpacker(BytesIO(self.journal), strict_map_key=False))
        return Past(load, work, entries, self.rounds, kinds)


@dataclass
class Keeping:
    """Keeps everything after each round."""

    classes: Collection[type]
    sink: BytesIO = field(default_factory=BytesIO)
    written: list[bytes] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = Journal(self.written.append)

    def end_round(self, rounds: int, snapshot: Callable[[], AnySnapshot], initial: StartValues) -> bool:
        writer = Writer(LIMITS, initial.names, self.classes)
        tree = bytes(msgpack.packb(writer.tree(snapshot(), "run")))
        arrays = [array.copy() for array in writer.arrays]
        for array in arrays:
            array.flags.writeable = False
        self.kept.append(Kept(rounds, self.sink.getvalue(), b"".join(self.written), tree, arrays))
        return True


def parts_of(changes: Mapping[str, Any]) -> Parts:
    return build(load_scenario(TINY | {"run": TINY["run"]}, changes))


def first(changes: Mapping[str, Any]) -> tuple[RunResult, Keeping]:
    parts = parts_of(changes)
    keeping = Keeping(Snapshot.classes(parts, kinds_of(parts)))
    result = run(parts, trace=Trace(keeping.sink), keeper=keeping)
    assert keeping.journal.fault is None
    return result, keeping


CASES: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "buffered, with work under way": {"participation.pacing": BUFFERED},
    "stateful, buffered": {"algorithm.name": "ditto", "participation.pacing": BUFFERED},
    "background work": {"algorithm.name": "ktpfl"},
    "several exchanges": {"algorithm.name": "fedmd"},
    "clients leave": {"fleet": LEAVING, "participation.client_timeout": "1 min"},
    "kept optimisers": {"training.keep_optimiser": True, "training.momentum": 0.9},
    "told losses": {
        "participation.selector": {"name": "power_of_choice", "params": {"candidates": 5}},
        "participation.pacing": BUFFERED,
    },
    "asked losses": {"participation.selector": {"name": "oort"}},
    "tiers by accuracy": {
        "participation.pacing": {
            "name": "tiered",
            "params": {"tiers": 2, "profiling": 1, "interval_rounds": 1},
        }
    },
    "error feedback": {
        "codec.up.models": {
            "chain": ["delta", {"name": "topk", "params": {"share": 0.1}}],
            "error_feedback": True,
        }
    },
    "deltas in flight": {
        "codec.up.models": {"chain": ["delta", "int8"]},
        "participation.pacing": BUFFERED,
    },
    "late replies": {
        "participation.pacing": {"name": "synchronous", "params": {"deadline": "2 s", "late": "carry"}}
    },
    "replies are rejected": {"training.lr": 1e6},
    "work by deadline": {
        "participation.workload": {"name": "deadline_fitted", "params": {"deadline": "3 s"}}
    },
    "faults of the network": {"faults": FAULTS, "participation.client_timeout": "20 s"},
    "frames that are sent again": {
        "faults": FAULTS,
        "participation.retry": {"times": 2, "after": "3 s"},
        "participation.pacing": BUFFERED,
        "participation.client_timeout": "20 s",
    },
    "crashes": {
        "faults": CRASHES,
        "algorithm.name": "ditto",
        "participation.pacing": BUFFERED,
        "participation.client_timeout": "5 s",
    },
    "slow devices": {"faults": SLOW, "participation.pacing": BUFFERED},
    "slow devices that leave": {"faults": SLOW, "fleet": LEAVING, "participation.client_timeout": "1 min"},
    "nothing is learned": {"engine.executor": "null"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_goes_on_from_any_round_ends_alike(case: str) -> None:
    whole, keeping = first(CASES[case])
    assert len(keeping.kept) == 4
    for kept in keeping.kept:
        parts, sink = parts_of(CASES[case]), BytesIO()
        resumed = run(parts, trace=Trace(sink), past=kept.past(parts))
        assert (resumed.trace_hash, resumed.model_hash) == (whole.trace_hash, whole.model_hash)
        assert sink.getvalue() == keeping.sink.getvalue()
        assert resumed.rejections == whole.rejections
        assert resumed.num_saturated == whole.num_saturated


def test_no_hook_runs_before_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    _, keeping = first({})
    parts, calls = parts_of({}), list[int]()
    monkeypatch.setattr(type(parts.algorithm), "models_of", lambda self, client, state, held: calls.append(0))
    past = keeping.kept[-1].past(parts)
    with pytest.raises(RunError):  # the first hook after it is not one
        run(parts, past=past)
    assert past.is_over


def test_another_scenario_does_not_repeat_the_past() -> None:
    _, keeping = first({})
    parts = parts_of({"evaluation.every": 1})
    with pytest.raises(RunError, match="cannot be repeated as far as its checkpoint"):
        run(parts, past=keeping.kept[-1].past(parts))


def test_models_that_clients_share_are_one_object_again() -> None:
    """Which of them are distinct decides the mean over global models."""
    whole, keeping = first({"algorithm.name": "hypcluster", "data.global_test": 0.2, "evaluation.every": 1})
    parts = parts_of({"algorithm.name": "hypcluster", "data.global_test": 0.2, "evaluation.every": 1})
    resumed = run(parts, past=keeping.kept[1].past(parts))
    assert [row.accuracy and row.accuracy.global_ for row in resumed.rounds] == [
        row.accuracy and row.accuracy.global_ for row in whole.rounds
    ]
