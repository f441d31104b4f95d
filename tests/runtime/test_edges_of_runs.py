"""Runs with edges: what they merge, how long a round takes, and who is left out."""

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.clock import Trace
from fedsim.errors import InvariantError, UserError
from fedsim.params import Model
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run
from fedsim.scenario import Scenario, build
from fedsim.wire import ModelBroadcast, ModelUpdate

FIXED = {"speed": "1 GFLOP/s", "variation": 0.0, "overhead": "0 s", "memory": "1 GB"}
CELLS = [{"name": name, "groups": [name]} for name in "AB"]
EDGE = {"device": "server", "up": "2 Mbit/s", "down": "4 Mbit/s", "latency": "30 ms"}


class Halving(FedAvg):
    """Client k turns w into w / 2 + k + 1 in no time, so each hop is easy to follow."""

    async def train(self, client: Any, state: Any, message: ModelBroadcast) -> tuple[Any, ModelUpdate]:
        model = message.model
        params = {
            name: np.asarray(array / 2 + client.client + 1, array.dtype)
            for name, array in model.params.items()
        }
        return state, ModelUpdate.of(Model(model.architecture, params, model.buffers), client.num_samples())


def group(name: str, count: int, **changes: Any) -> dict[str, Any]:
    links = {"up": "1 Mbit/s", "down": "1 Mbit/s", "latency": "20 ms"}
    return {"name": name, "count": count, "device": "mid", **FIXED, **links, **changes}


def parts_of(
    edges: Sequence[dict[str, Any]],
    fleet: Sequence[dict[str, Any]] = (group("A", 2), group("B", 2), group("alone", 1)),
    cells: Sequence[dict[str, Any]] = CELLS,
    **tables: Any,
) -> Parts:
    there = {one["name"] for one in fleet}
    scenario = {
        "run": {"rounds": 1, "seed": 2},
        "data": {"name": "digits", "limit": 200},
        "models": {"linear": {}},
        "algorithm": {"name": "fedavg"},
        "training": {"lr": 0.1, "batch_size": 8},
        "fleet": list(fleet),
        "cell": [one for one in cells if set(one.get("groups", [])) <= there],
        "edge": list(edges),
        "engine": {"workers": 1},
        **tables,
    }
    return build(Scenario.model_validate(scenario))


def done(parts: Parts) -> tuple[RunResult, Trace]:
    trace = Trace(BytesIO(), keep=True)
    return run(replace(parts, verify=True), trace=trace), trace


def kept(trace: Trace, kind: str) -> list[tuple[Any, ...]]:
    return [(at_ns / 1e9, *values) for at_ns, its, *values in trace.kept if its == kind]


def params_of(result: RunResult) -> dict[str, np.ndarray]:
    (models,) = {id(models["global"]): models["global"] for models in result.models.values()}.values()
    return dict(models.params)


def halved(parts: Parts) -> Parts:
    return replace(parts, algorithm=Halving(FedAvgConfig()))


def start(parts: Parts) -> dict[str, np.ndarray]:
    return dict(parts.initial()("linear").params)


def mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return float(np.average(values, weights=weights))


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedavgm"])
def test_with_one_edge_round_the_model_is_that_without_edges(algorithm: str, weighting: str) -> None:
    tables: dict[str, Any] = {
        "run": {"rounds": 3, "seed": 2},
        "algorithm": {"name": algorithm, "params": {"weighting": weighting}},
        "data": {"name": "digits", "limit": 200, "partition": "all_uneven"},
    }
    direct, _ = done(parts_of([], **tables))
    edged, trace = done(parts_of([{"cell": "A"}, {"cell": "B"}], **tables))
    assert len(kept(trace, "edge_merge")) == 6
    for name, array in params_of(direct).items():
        np.testing.assert_allclose(params_of(edged)[name], array, rtol=1e-6, atol=1e-6)
    assert [row.merged for row in edged.rounds] == [row.merged for row in direct.rounds]


def test_edge_rounds_are_means_of_means() -> None:
    parts = halved(parts_of([{"cell": "A", "rounds": 2}, {"cell": "B"}]))
    n = parts.data.sizes("train").tolist()
    # A: w -> w/2 + a twice, where a is the mean of 1 and 2 by samples; B: once, 3 and 4; alone: 5.
    a, b = mean([1, 2], n[:2]), mean([3, 4], n[2:4])
    result, trace = done(parts)
    share_a, share_b, alone = sum(n[:2]) / sum(n), sum(n[2:4]) / sum(n), n[4] / sum(n)
    for name, w in start(parts).items():
        at_a, at_b = (w / 2 + a) / 2 + a, w / 2 + b
        wanted = share_a * at_a + share_b * at_b + alone * (w / 2 + 5)
        np.testing.assert_allclose(params_of(result)[name], wanted, rtol=1e-6)
    assert [one[1:] for one in kept(trace, "edge_merge")] == [
        (1, "train", 0, (0, 1), (0, 0)),
        (1, "train", 1, (2, 3), (0, 0)),
        (1, "train", 0, (0, 1), (1, 1)),
    ]
    assert [one[4:] for one in kept(trace, "merge")] == [((4,), (0,))]


def test_a_round_takes_latency_and_bytes_by_rate_on_each_hop() -> None:
    cell = {"name": "A", "groups": ["A"], "down": "3 Mbit/s", "up": "500 kbit/s", "latency": "5 ms"}
    # A single client, so nothing is shared. The server's link counts between edge and server only.
    server = {"up": "8 Mbit/s", "down": "8 Mbit/s", "latency": "7 ms"}
    parts = halved(parts_of([{"cell": "A", **EDGE}], [group("A", 1)], [cell], server=server))
    result, trace = done(parts)
    (down, up), (model, update) = (kept(trace, kind) for kind in ("edge_start", "transfer_start"))
    to_edge_s = 0.030 + 0.007 + 8 * (down[5] + down[8]) / 4e6  # the edge's downlink is narrower than 8 Mbit/s
    to_client_s = 0.020 + 0.005 + 8 * (model[5] + model[8]) / 1e6  # the client's own link is the narrowest
    to_edge_again_s = 0.020 + 0.005 + 8 * (update[5] + update[8]) / 0.5e6  # the cell's
    to_server_s = 0.030 + 0.007 + 8 * (up[5] + up[8]) / 2e6
    assert model[0] == pytest.approx(to_edge_s, abs=2e-9)
    assert up[0] == pytest.approx(to_edge_s + to_client_s + to_edge_again_s, abs=5e-9)
    assert result.rounds[-1].ended_at_s == pytest.approx(up[0] + to_server_s, abs=5e-9)


def test_clients_of_one_edge_share_its_cell_and_not_the_servers_link() -> None:
    cells = [{"name": name, "groups": [name], "up": "1 Mbit/s", "down": "1 Mbit/s"} for name in "AB"]
    narrow = {"up": "10 kbit/s", "down": "10 kbit/s"}
    fleet = [group("A", 2, latency="0 s"), group("B", 1, latency="0 s")]
    result, trace = done(halved(parts_of([{"cell": "A"}, {"cell": "B"}], fleet, cells, server=narrow)))
    began_s = {one[1]: one[0] for one in kept(trace, "dispatch")}
    came_s = {one[1]: one[0] for one in kept(trace, "transfer_end") if not one[3]}
    bits = 8 * (result.ledger.columns()["bytes"][0] + result.ledger.columns()["overhead"][0])
    lasted_s = [came_s[client] - began_s[client] for client in range(3)]
    assert lasted_s == pytest.approx([2 * bits / 1e6, 2 * bits / 1e6, bits / 1e6], rel=1e-6)


def test_a_client_that_runs_out_of_its_lease_is_left_out_of_its_edges_mean() -> None:
    fleet = [group("A", 1), group("slow", 1, latency="20 s")]
    cells = [{"name": "A"}]
    waits = {"client_timeout": "10 s"}
    parts = halved(parts_of([{"cell": "A", "rounds": 2}], fleet, cells, participation=waits))
    result, trace = done(parts)
    for name, w in start(parts).items():
        np.testing.assert_allclose(params_of(result)[name], (w / 2 + 1) / 2 + 1, rtol=1e-6)
    assert result.drops == {"timeout": 2}
    assert [one[4:] for one in kept(trace, "edge_merge")] == [((0,), (0,)), ((0,), (1,))]
    assert (result.rounds[0].asked, result.rounds[0].merged, result.rounds[0].dropped) == (4, 2, 2)


def test_an_edge_without_replies_sends_nothing_up() -> None:
    fleet = [group("A", 1), group("B", 2, latency="20 s")]
    waits = {"client_timeout": "10 s"}
    parts = halved(parts_of([{"cell": "A"}, {"cell": "B"}], fleet, participation=waits))
    result, trace = done(parts)
    for name, w in start(parts).items():
        np.testing.assert_allclose(params_of(result)[name], w / 2 + 1, rtol=1e-6)
    assert [one[1:4:2] for one in kept(trace, "edge_start")] == [(0, False), (1, False), (0, True)]
    assert len(kept(trace, "merge")) == 1


def test_a_round_in_which_no_edge_has_a_reply_merges_nothing() -> None:
    waits = {"client_timeout": "10 s"}
    parts = halved(parts_of([{"cell": "A"}], [group("A", 2, latency="20 s")], participation=waits))
    result, trace = done(parts)
    assert not kept(trace, "merge")
    for name, w in start(parts).items():
        np.testing.assert_array_equal(params_of(result)[name], w)


def test_an_edge_that_has_replies_in_one_of_its_rounds_sends_that_mean() -> None:
    # The client is struck by a crash in the second edge round, and so does not reply.
    fleet, waits = [group("A", 1, latency="1 s")], {"client_timeout": "10 s"}
    crash = [{"kind": "partition", "at": "4 s", "for": "1 h"}]
    parts = halved(parts_of([{"cell": "A", "rounds": 2}], fleet, participation=waits, faults=crash))
    result, _ = done(parts)
    for name, w in start(parts).items():
        np.testing.assert_allclose(params_of(result)[name], w / 2 + 1, rtol=1e-6)
    assert result.drops == {"partition": 1}


def test_a_budget_ends_a_run_while_edges_are_at_work() -> None:
    budget = {"seed": 2, "until": {"simulated": "10 ms"}}
    result, trace = done(parts_of([{"cell": "A", **EDGE}, {"cell": "B"}], run=budget))
    assert [one[4] for one in kept(trace, "edge_end")] == ["delivered", "lost"]
    assert result.stopped_by == "simulated"
    assert result.drops == {"the run ended": 3}  # those of edge B, and the one without an edge


@pytest.mark.parametrize("faults", [[], [{"kind": "loss", "probability": 0.3}]])
def test_hashes_are_the_same_for_any_number_of_workers(faults: list[dict[str, Any]]) -> None:
    hashes = set()
    for workers, batching in ((1, "auto"), (2, "off"), (4, "auto")):
        engine = {"workers": workers, "batching": batching}
        tables: dict[str, Any] = {"run": {"rounds": 2, "seed": 2}, "engine": engine, "faults": faults}
        result = run(parts_of([{"cell": "A", "rounds": 2}, {"cell": "B"}], **tables))
        hashes.add((result.trace_hash, result.model_hash))
    assert len(hashes) == 1


def test_without_edges_a_trace_knows_none() -> None:
    _, trace = done(parts_of([]))
    assert not any(kind.startswith("edge") for _, kind, *_ in trace.kept)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "edge: edges average replies, and 'scaffold'": (
        {"algorithm": {"name": "scaffold"}},
        "its server takes no mean of models",
    ),
    "edge: edges stand for the server": ({"algorithm": {"name": "fedavg_ft"}}, "rounds of one exchange"),
    "participation.pacing: an edge waits": (
        {"participation": {"pacing": {"name": "synchronous", "params": {"deadline": "5 s"}}}},
        "leave [[edge]] out",
    ),
    "participation.selector: 'power_of_choice'": (
        {"participation": {"selector": "power_of_choice", "clients_per_round": 2}},
        "edges stand between",
    ),
    "aggregation: 'median'": ({"aggregation": "median"}, "edges send means"),
    "codec: edges": ({"codec": {"up": {"models": {"chain": ["float16"]}}}}, "do not code frames"),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_what_edges_cannot_do_is_refused_with_the_reason(problem: str) -> None:
    tables, why = REFUSED[problem]
    with pytest.raises(UserError) as caught:
        parts_of([{"cell": "A"}], **tables)
    assert problem in str(caught.value)
    assert why in str(caught.value)


def test_an_asynchronous_pacing_is_refused() -> None:
    pacing = {"pacing": {"name": "buffered", "params": {"concurrency": 3, "buffer": 2}}}
    with pytest.raises(UserError, match="'buffered' with these parameters does not"):
        parts_of([{"cell": "A"}], participation=pacing)


def test_an_algorithm_that_sends_clients_of_an_edge_different_messages_is_told() -> None:
    class Uneven(FedAvg):
        no_edges = None

        async def send(self, server: Any, state: Model, cohort: Sequence[int]) -> tuple[Model, Any]:
            return state, {client: ModelBroadcast.of(state) for client in cohort}

    parts = replace(parts_of([{"cell": "A"}]), algorithm=Uneven(FedAvgConfig()))
    with pytest.raises(InvariantError, match=r"differs.*set no_edges"):
        run(parts)
