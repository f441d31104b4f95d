"""The server's side of a run in real time: robust where processes are away, silent, or lie."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange, Predictor
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.errors import RunError
from fedsim.fleet import Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.network.cells import Cells
from fedsim.network.edges import Edges
from fedsim.network.fault_settings import FaultConfig
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.network.fluid import Fluid, FluidConfig
from fedsim.params import Model
from fedsim.runtime.clients.held import Held
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.run import run
from fedsim.runtime.sockets.serve import unused
from fedsim.runtime.state_encoding import encode
from tests.runtime.sockets.conftest import over_http


def by_diary(observer: Any, server: Any, client: Any) -> Mapping[str, Predictor]:
    """A model whose values are what the client has in its diary."""
    model = observer.initial_model()
    value = float(sum(client.pages) + 100 * client.mirror)
    params = {name: np.full_like(array, value) for name, array in model.params.items()}
    return {"personal": Predictor(Model(model.architecture, params))}


def observed(world: Any, work_s: float = 3.0, **changes: Any) -> Any:
    scripted = world.Scripted(models_of=by_diary, work_s=lambda client, exchange: work_s)
    return world.make_parts(scripted, executor=world.Oracle(), verify=False, **changes)


class Probes:
    """Notes whom the server asks for a state; answers with bytes or an error as long as there are some."""

    def __init__(self, answers: Iterable[bytes | Exception] = ()) -> None:
        self.asked: list[int] = []
        self.answers = iter(answers)

    def __call__(self, world: Any) -> None:
        world.server.probe = partial(self._probe, world.server.probe)

    async def _probe(self, probe: Any, client: int, question: bytes, timeout_s: float) -> Any:
        self.asked.append(client)
        answer = next(self.answers, None)
        if isinstance(answer, Exception):
            raise answer
        return await probe(client, question, timeout_s) if answer is None else answer


def test_a_merge_that_leaves_the_finite_range_is_refused_here_too(world: Any) -> None:
    def doubled() -> Any:
        return np.full(3, 3e38, np.float32) * np.float32(2)

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        both = [doubled(), await client.call(doubled, flops=1.0)]
        return state, world.word(float(np.isinf(both).all()))

    async def merge(exchange: str, server: Any, state: Any, replies: Any) -> Any:
        # Nowhere a warning, which would be an error here.
        assert [reply.message.values[0] for reply in replies] == [1, 1, 1]
        return (doubled(),) if server.round == 1 else state

    def make() -> Any:  # each side has threads of its own, and ends them
        executor = THREADS(ExecutorConfig(workers=2))
        algorithm = world.Scripted(local=local, merge=merge)
        return world.make_parts(algorithm, executor=executor, rounds=2, verify=False)

    result, _ = over_http(make, ["0,2", "1"])
    assert [(row.merged, row.rejected) for row in result.rounds] == [(0, 3), (3, 0)]
    (reason,) = result.rejections
    assert reason == "the merge of exchange 'talk' leaves the finite range: tuple[0] holds NaN or an infinity"
    assert result.non_finite is None


def test_states_are_fetched_for_the_observer(world: Any) -> None:
    probes = Probes()
    here = run(observed(world, rounds=3))
    there, sockets = over_http(lambda: observed(world, work_s=1e6, rounds=3), ["0,2", "1"], prepare=probes)
    assert there.model_hash == here.model_hash
    assert replace(there.totals) == replace(here.totals)
    assert [row.merged for row in there.rounds] == [3, 3, 3]
    assert 0 < there.simulated_s < 1e4  # durations of jobs play no part
    assert sorted(set(probes.asked)) == [0, 1, 2]
    assert not sockets.log.of("evaluated as it joined")
    assert len(there.ledger) == 18  # probes have no row


BAD: dict[str, tuple[bytes | Exception, str]] = {
    "rubbish": (b"rubbish", "no state"),
    "a tuple": (encode((1, 2)), "tuple where"),
    "no model": (encode(Held(0, Model("odd", {}), None)), "'odd'"),
    "another model": (encode(Held(0, Model("linear", {"head.weight": np.zeros(3)}), None)), "'linear'"),
    "nothing": (b"", ""),
    "silence": (TimeoutError(), "does not answer"),
    "an error": (RunError("it is not well"), "not well"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_state_is_measured_as_it_joined(bad: str, world: Any) -> None:
    answer, said = BAD[bad]
    algorithm = world.Scripted()
    parts = world.make_parts(algorithm, executor=world.Oracle(), verify=False)
    _, sockets = over_http(lambda: parts, ["0-2"], prepare=Probes(repeat(answer)))
    warned = sockets.log.of("evaluated as it joined")
    assert bool(warned) == bool(said)
    assert all(said in one["reason"] for one in warned)
    assert algorithm.observed == dict.fromkeys(range(3), world.Diary((), -1))


def test_who_was_never_asked_or_never_came_is_not_probed(world: Any) -> None:
    probes = Probes()
    result, _ = over_http(lambda: observed(world, clients_per_round=1), ["0-2"], prepare=probes)
    (asked,) = np.flatnonzero(result.by_client["asked"]).tolist()
    assert set(probes.asked) == {asked}
    probes, parts = Probes(), observed(world, client_timeout_s=5.0)
    result, sockets = over_http(lambda: parts, ["0,2"], prepare=probes, wait_s=10.0)
    assert result.by_client["merged"].tolist() == [1, 0, 1]
    assert dict(result.drops) == {"timeout": 1}
    assert sockets.log.of("clients missing") == [{"count": 1, "first": [1]}]
    assert set(probes.asked) == {0, 2}
    with pytest.raises(RunError, match="fedsim join"):
        over_http(lambda: parts, [], wait_s=10.0)


def test_presence_of_the_scenario_plays_no_part(world: Any) -> None:
    parts = world.make_parts(world.Scripted(), verify=False)
    fleet, never = parts.fleet, SimpleNamespace(is_constant=False)  # asking it fails
    away = replace(parts, fleet=Fleet(fleet.groups, fleet.server, fleet.server_model, cast(Any, never)))
    assert unused(parts) is None
    assert "availability" in str(unused(away))
    group = GroupConfig.model_validate({"count": 3, "battery": {"capacity": "1 kJ"}})
    assert "battery of [[fleet]]" in str(
        unused(replace(parts, fleet=build_fleet([group], ServerConfig(), parts.key)))
    )
    result, sockets = over_http(lambda: away, ["0-2"])
    assert [row.merged for row in result.rounds] == [3]
    assert len(sockets.log.of("real time")) == 1


def test_cells_play_no_part(world: Any) -> None:
    parts = world.make_parts(world.Scripted(), network=FLUID(FLUID.Config()))
    cells = Cells(["A"], np.zeros(3, np.int32), up=[1.0], down=[1.0], latency_s=[9.0])
    assert "[[cell]] plays no part over sockets" in str(unused(replace(parts, cells=cells)))


def test_edges_play_no_part(world: Any) -> None:
    cells = Cells(["A"], np.zeros(3, np.int32), [1e9], [1e9], [0.0])
    algorithm = type("Averaging", (world.Scripted,), {"no_edges": None})()
    parts = replace(world.make_parts(algorithm, verify=False), network=Fluid(FluidConfig()))
    parts = replace(parts, cells=cells, edges=Edges(cells, [0], [2], [1e9], [1e9], [0.0]))
    assert "[[edge]] plays no part over sockets" in str(unused(parts))
    result, _ = over_http(lambda: parts, ["0-2"])
    assert [row.merged for row in result.rounds] == [3]
    assert result.edge_frames is None


def test_faults_of_devices_play_no_part(world: Any) -> None:
    crash, slow = [
        FaultConfig.model_validate(one)
        for one in ({"kind": "crash", "at": "1 ns", "every": "10 ms"}, {"kind": "slow", "factor": 1000})
    ]
    late = FaultConfig.model_validate({"kind": "delay", "probability": 1.0, "delay": "1 ms"})
    parts = world.make_parts(world.Scripted(), faults=(late, crash, slow), verify=False)
    assert "'crash' and 'slow' play no part over sockets" in str(unused(parts))
    assert unused(replace(parts, faults=(late,))) is None
    result, _ = over_http(lambda: parts, ["0-2"])
    assert [row.merged for row in result.rounds] == [3]
    assert result.faults == {"delay": 6}
    assert result.simulated_s < 100


def test_leases_and_deadlines_are_real(world: Any) -> None:
    def mute(client: Any) -> None:
        send = client.send
        client.send = lambda header, message: (
            asyncio.sleep(0) if header.sender == 1 else send(header, message)
        )

    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "1 s", "interval": "1.1 s"}))
    scripted = world.Scripted([Exchange("talk", reply=world.Word)])
    parts = world.make_parts(scripted, pacing=pacing, rounds=2, client_timeout_s=60.0, verify=False)
    result, _ = over_http(lambda: parts, ["0-2"], change=mute)
    assert dict(result.drops) == {"too late": 2}
    first, second = result.rounds
    assert 1 <= first.ended_at_s - first.began_at_s < 60
    assert second.began_at_s - first.began_at_s >= 1.0999
