"""The same run over real sockets, on one loop: the models and the bytes of payload are those of memory."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Algorithm
from fedsim.bus.http.state_folder import StateFolder
from fedsim.clock import Trace
from fedsim.data.federated import Holdings
from fedsim.engine.training_config import TrainingConfig
from fedsim.network.fault_settings import FaultConfig, RetryConfig
from fedsim.network.overhead import CHUNK_BYTES
from fedsim.plugins import available
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run
from fedsim.runtime.state_encoding import classes_of, decode_held, encode
from tests.bus.http.conftest import Log
from tests.runtime.sockets.conftest import CLIENTS, SOON, over_http, parts

SHARES = ["0,2", "1,3"]


def payload(result: RunResult) -> Counter[tuple[int, bool, str]]:
    columns, sums = result.ledger.columns(), Counter[tuple[int, bool, str]]()
    for *key, size in zip(*(columns[name] for name in ("client", "up", "kind", "bytes")), strict=True):
        sums[int(key[0]), bool(key[1]), str(key[2])] += int(size)
    return sums


def in_memory_and_over_http(
    name: str, *, folder: Path | None = None, **changes: Any
) -> tuple[RunResult, RunResult, Any]:
    """Return both results, which have the same models and bytes, and the server's side of the second."""
    here = run(parts(name, **changes))
    there, world = over_http(lambda: parts(name, **changes), SHARES, folder=folder)
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)
    assert not there.drops
    assert not there.rejections
    assert not world.server.rejected
    assert there.rounds[0].began_at_s < 10  # since the run began, not the host's uptime
    return here, there, world


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(found.name, marks=[] if found.name in SOON else pytest.mark.slow)
        for found in available("fedsim.algorithms")
    ],
)
def test_models_and_bytes_are_those_of_memory(name: str, tmp_path: Path) -> None:
    here, there, world = in_memory_and_over_http(name, folder=tmp_path)
    assert there.totals.parameters_up == here.totals.parameters_up
    assert there.best == here.best
    for row, its in zip(here.rounds, there.rounds, strict=True):
        assert (row.asked, row.merged) == (its.asked, its.merged)
        assert (row.accuracy is None) == (its.accuracy is None)
        if row.accuracy is not None and its.accuracy is not None:
            assert row.accuracy.personal.tolist() == its.accuracy.personal.tolist()
    assert not world.log.of("evaluated as it joined")
    # And states come back from bytes as they were.
    algorithm, kept = parts(name).algorithm, list[bytes]()
    for share in SHARES:
        with closing(StateFolder(tmp_path / share)) as state:
            kept += filter(None, map(state.get, range(CLIENTS)))
    assert kept or type(algorithm).join is Algorithm.join
    assert [encode(decode_held(one, classes_of(algorithm))) for one in kept] == kept


@pytest.mark.parametrize("name", ["fedavg", pytest.param("fedme", marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [8, 1200], ids=["short frames", "long frames"])
def test_kept_optimisers_and_phases(name: str, width: int, tmp_path: Path) -> None:
    """Optimisers are those of memory, and the dispatch table says what the processes have seen."""
    training = TrainingConfig(lr=0.1, batch_size=16, momentum=0.9, keep_optimiser=True)
    anew = training.model_copy(update={"keep_optimiser": False})
    changes: dict[str, Any] = {"width": width, "rounds": 3, "verify": True}
    here, there, world = in_memory_and_over_http(name, folder=tmp_path, training=training, **changes)
    if width == 8:
        assert here.model_hash != run(parts(name, training=anew, **changes)).model_hash
    assert (max(there.ledger.columns()["bytes"]) > CHUNK_BYTES) == (width == 1200)
    if name == "fedme":
        return  # some of its dispatches take no time that is told
    told = {(one[2], one[3]): one[4:] for one in world.trace.kept if one[1] == "spent"}
    columns = there.dispatches.columns()
    of = list(zip(columns["client"].tolist(), columns["dispatch"].tolist(), strict=True))
    assert sorted(told) == sorted(of)
    assert (columns["download_s"] > 0).all()
    assert (columns["compute_s"] > 0).all()
    # A short frame is there at once.
    assert {upload_ns > 0 for _, _, upload_ns in told.values()} == {width == 1200}
    passed = columns["ended_at_s"] - columns["asked_at_s"]
    np.testing.assert_allclose(sum(columns[f"{phase}_s"] for phase in PHASES), passed, atol=1e-6)


FAULTS: dict[str, dict[str, Any]] = {
    "resets": {"slice_bytes": 1 << 13, "reset_after": 200_000, "reset_again": 200_000},
    "one reset": {"reset_after": 500_000},
    "latency": {"latency_s": 0.1},
    "bandwidth": {"bytes_per_s": 1e6},
    "slicing": {"slice_bytes": 700},
    "a stall": {"stall_after": 600_000},
    "a stall downwards": {"stall_down_after": 600_000},
}
"""Of which all but the first are slow tests: tests/bus/http/test_faults.py has each for single replies."""


@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[] if one == "resets" else pytest.mark.slow) for one in FAULTS]
)
def test_each_reply_is_merged_once_under(fault: str) -> None:
    def make() -> Parts:
        return parts("fedavg", width=400, rounds=4, clients_per_round=CLIENTS)

    here, (there, _) = run(make()), over_http(make, ["0-3"], harm=FAULTS[fault])
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)
    assert [(row.asked, row.merged) for row in there.rounds] == [(CLIENTS, CLIENTS)] * 4
    assert there.by_client["merged"].tolist() == [4] * CLIENTS
    assert not there.drops
    assert not there.rejections
    # One row for each dispatch and reply, however often it travelled.
    assert there.ledger.outcomes()["delivered"] == len(there.ledger) == 2 * CLIENTS * 4


STRUCK = [
    {"kind": "loss", "probability": 0.2},
    {"kind": "corrupt", "probability": 0.15},
    {"kind": "delay", "probability": 0.4, "delay": "2 s"},
    {"kind": "duplicate", "probability": 0.4},
]


@pytest.mark.parametrize("times", [0, 1, 9], ids=["not again", "once more", "until it arrives"])
@pytest.mark.parametrize("name", ["scaffold", pytest.param("fedmd", marks=pytest.mark.slow)])
def test_faults_of_frames_are_those_of_memory(name: str, times: int) -> None:
    """Frames are lost, sent again and doubled alike, and what arrives gives the same models."""

    def make() -> Parts:
        faults = tuple(FaultConfig.model_validate(one) for one in STRUCK)
        retry = RetryConfig.model_validate({"times": times, "after": "1 s"}) if times else None
        return parts(name, rounds=6, faults=faults, retry=retry, verify=True)

    trace = Trace(keep=True)
    here, (there, world) = run(make(), trace=trace), over_http(make, SHARES)
    assert there.model_hash == here.model_hash
    assert there.faults == here.faults
    assert set(there.faults) == {str(one["kind"]) for one in STRUCK}
    assert there.drops == here.drops
    assert bool(there.drops) == (times < 9)
    assert payload(there) == payload(here)
    assert there.ledger.outcomes() == here.ledger.outcomes()
    assert there.by_client["merged"].tolist() == here.by_client["merged"].tolist()
    assert not world.server.rejected
    kinds = [Counter(record[1] for record in kept) for kept in (trace.kept, world.trace.kept)]
    for kind in ("retry", "transfer_start", "transfer_end", "transfer_copy"):
        assert kinds[0][kind] == kinds[1][kind]


def test_work_without_frames_is_seen_too() -> None:
    _, there, _ = in_memory_and_over_http("local", verify=True)
    columns = there.dispatches.columns()
    assert (columns["compute_s"] > 0).all()
    assert (columns["download_s"] == 0).all()
    assert (columns["upload_s"] == 0).all()


def test_what_clients_note_is_in_the_servers_log_as_in_memory() -> None:
    warned = "no validation samples"

    def of_clients(log: Log) -> list[str]:
        noted = [(event, values) for event, values in log.lines if event in ("student chosen", warned)]
        for _, values in noted:
            values.pop("told_by", None)
        return sorted(map(str, noted))

    # Client 2 has no validation samples.
    data = parts("persfl").data
    val, indices = data.holdings["val"], data.holdings["val"].flat
    assert indices is not None
    first, end = val.offsets[2:4]
    offsets = np.where(np.arange(CLIENTS + 1) > 2, val.offsets - (end - first), val.offsets)
    few = Holdings(offsets, np.delete(indices, slice(first, end)))
    without = replace(data, holdings={**data.holdings, "val": few})
    here = Log()
    run(parts("persfl", data=without), log=here)
    _, world = over_http(lambda: parts("persfl", data=without), SHARES)
    assert of_clients(world.log) == of_clients(here)
    assert set(world.log.warned) == set(here.warned) == {warned}
    assert here.of("student chosen")
