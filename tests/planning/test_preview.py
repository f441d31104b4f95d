from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fedsim import plugins
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.device import QUANTITIES
from fedsim.models import Architecture, ModelPlugin
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.models.module_by_path import adopted
from fedsim.network.capacity_trace import Capacity
from fedsim.network.cells import Cells
from fedsim.network.edges import Edges
from fedsim.network.fault_settings import FaultConfig
from fedsim.planning import preview
from fedsim.planning.rehearsal import rehearse
from fedsim.rng import Key
from fedsim.runtime.parts import Parts


def test_the_tables_of_a_scenario(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    assert preview.fleet(parts.fleet).title == "Fleet: 4 clients"
    assert [row[0] for row in preview.fleet(parts.fleet).rows][:2] == ["speed", "memory"]
    train, val, test = preview.data(parts).rows
    assert train == ("train", "24", "24", "24", "24", "24", "96")
    assert (val[-1], test[-1]) == ("16", "48")
    assert preview.data(parts).notes[0] == "public set: 20 samples; global test set: 20 samples"
    assert preview.models(parts).rows == [("linear", "linear", "650", "2.6 kB", "4")]
    assert preview.groups(parts).rows == [
        ("high", "4", "4", "linear", "96"),
        ("server (server)", "", "", "linear", ""),
    ]
    assert not preview.groups(parts).notes


class Net(nn.Linear):
    def __init__(self, num_classes: int, width: int = 64) -> None:
        super().__init__(width, num_classes)


def test_what_models_are(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    net: Any = adopted(f"{__name__}.Net")
    models: dict[str, ModelPlugin[Any]] = {
        "own": net(net.Config(width=64)),
        "wide": MLP(MLP.Config(hidden=(8, 4))),
    }
    made = {label: Architecture(label, plugin, parts.data.task) for label, plugin in models.items()}
    rows = preview.models(replace(parts, architectures=made)).rows
    assert [row[:2] for row in rows] == [
        ("own", f"{__name__}.Net (width = 64)"),
        ("wide", "mlp (hidden = [8, 4])"),
    ]


def test_the_model_of_the_server(make_parts: Callable[..., Parts]) -> None:
    fedgkt, fedmd, fedavg = (make_parts(name) for name in ("fedgkt", "fedmd", "fedavg"))
    assert preview.models(fedgkt).notes == ["the server's own model: linear, 650 parameters"]
    assert not preview.models(fedmd).notes
    shown = [preview.groups(parts).rows[-1][3] for parts in (fedgkt, fedmd, fedavg)]
    assert shown == ["linear", "", "linear"]


def test_a_regression_has_outputs_and_no_classes(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    assert preview.data(parts).notes[1] == "one sample: 64 inputs, 10 classes"
    data = replace(parts.data, task=replace(parts.data.task, num_outputs=1, kind="regression"))
    assert preview.data(replace(parts, data=data)).notes[1] == "one sample: 64 inputs, 1 output"


def test_clients_that_are_never_asked_are_told(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    groups = [
        GroupConfig.model_validate({"count": 1, "device": "mid", "name": "roomy"}),
        GroupConfig.model_validate({"count": 3, "name": "tiny", "memory": "1 kB"}),
    ]
    fleet = build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear")
    train = parts.data.holdings["train"]
    offsets = np.array([0, 24, 24, 48, 72])
    holdings = {**parts.data.holdings, "train": replace(train, offsets=offsets)}
    grid = preview.groups(replace(parts, fleet=fleet, data=replace(parts.data, holdings=holdings)))
    assert [row[:3] for row in grid.rows[:2]] == [("roomy", "1", "1"), ("tiny", "3", "0")]
    # 650 parameters with a gradient, and 32 samples of 64 numbers, a label and 10 logits: 5200 + 9728 B.
    assert grid.notes == [
        "tiny: 3 clients never selected: 'linear' needs 14.9 kB of memory, they have 1 kB at most",
        "tiny: 1 client never selected: no training samples",
    ]


def test_all_that_may_wait_for_a_lost_reply_is_told(make_parts: Callable[..., Parts]) -> None:
    def waiting(name: str, probability: float = 0.1, kind: str = "loss", **changes: Any) -> list[str]:
        lossy = FaultConfig.model_validate({"kind": kind, "probability": probability})
        parts = make_parts(name, faults=(lossy,), client_timeout_s=1e6, **changes)
        return [note.split(" waits")[0] for note in preview.faults(parts, rehearse(parts).last).notes]

    power: Any = plugins.load("fedsim.runtime.policies.selectors", "power_of_choice")
    asking = power(power.Config(losses="asked"))
    hasty = power(power.Config.model_validate({"losses": "asked", "answer_within": "1 s"}))
    lagged: Any = plugins.load("fedsim.runtime.policies.pacing", "lagged")
    pacing = lagged(lagged.Config(concurrency=4, max_lag=1))
    assert waiting("fedavg", 0.0) == []
    assert waiting("fedavg") == waiting("fedavg", selector=hasty) == ["a round"]
    assert waiting("fedavg", pacing=pacing) == []
    assert waiting("fedavg", pacing=pacing, selector=asking) == [
        "selector 'power_of_choice', which asks clients,"
    ]
    assert waiting("persfl")[1:] == ["exchange 'distil', held once with all clients,"]
    assert waiting("fedmd") == ["a round"]  # its exchange before the rounds sends no frame
    assert waiting("fedmd", kind="crash")[1:] == ["exchange 'pretrain', held once with all clients,"]


def test_where_the_public_set_is_from_and_who_holds_it(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    data = replace(parts.data, public_labelled=False, public_at_clients=False)
    assert preview.data(replace(parts, data=data)).notes[0] == (
        "public set: 20 samples of another data set, held by the server alone; global test set: 20 samples"
    )


def test_links_that_follow_traces_are_told_and_rehearsed_at_their_mean(
    make_parts: Callable[..., Parts], tmp_path: Path
) -> None:
    path = tmp_path / "link.csv"
    path.write_text("at_s,Mbps\n0,4\n1,0\n")
    fluid: Any = plugins.load("fedsim.network", "fluid")

    def parts_of(**rates: str) -> Parts:
        groups = [GroupConfig.model_validate({"count": 4, "name": "riders", **rates})]
        fleet = build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear")
        return make_parts(fleet=fleet, network=fluid(fluid.Config()))

    traced = parts_of(up_trace=str(path))
    grid = preview.fleet(traced.fleet)
    assert grid.notes == ["up of riders: mean of a trace, of 1 trace"]
    assert next(row for row in grid.rows if row[0] == "up")[1] == "2 Mbit/s"
    constant = parts_of(up="2 Mbit/s")
    assert preview.fleet(constant.fleet).notes == []
    assert rehearse(traced).simulated_s == rehearse(constant).simulated_s


def test_cells_that_follow_traces_are_rehearsed_at_their_mean(make_parts: Callable[..., Parts]) -> None:
    fluid: Any = plugins.load("fedsim.network", "fluid")
    traced, constant = (
        make_parts(
            network=fluid(fluid.Config()),
            cells=Cells(["A"], np.zeros(4, np.int32), up=[up], down=[inf], latency_s=[0.0]),
        )
        for up in (Capacity([0, 10**9], [4e3, 0.0], 2 * 10**9), 2e3)
    )
    assert traced.is_traced
    assert not constant.is_traced
    assert rehearse(traced).simulated_s == rehearse(constant).simulated_s > 1


def test_cells_by_hand() -> None:
    steps = Capacity([0, 10**9], [1e6, 3e6], 2 * 10**9)
    of = np.array([0, -1, 0, 1], np.int32)
    shown = preview.cells(Cells(["A", "B"], of, up=[2e7, inf], down=[inf, steps], latency_s=[0.02, 0.0]))
    assert shown.rows == [
        ("A", "2", "20 Mbit/s", "unlimited", "20 ms"),
        ("B", "1", "unlimited", "2 Mbit/s", "0 s"),
    ]
    assert shown.notes == ["capacities that follow traces: their means"]


def test_edges_are_told_with_their_frames(make_parts: Callable[..., Parts]) -> None:
    fluid: Any = plugins.load("fedsim.network", "fluid")
    cells = Cells(["north", "south"], np.array([0, 0, 0, -1], np.int32), [1e6] * 2, [1e6] * 2, [0.0] * 2)
    edges = Edges(cells, [0], [2], [1e9], [2e9], [0.005])
    parts = make_parts(network=fluid(fluid.Config()), cells=cells, edges=edges)
    frames = rehearse(parts).result.edge_frames
    assert frames is not None
    table = preview.edges(edges, frames.totals())
    assert table.rows == [("north", "3", "2", "1 Gbit/s", "2 Gbit/s", "5 ms")]
    assert table.notes == [
        "between them and the server in the rehearsed rounds, which the costs below leave out: 2 frames up, "
        "5.62 kB; 2 frames down, 5.58 kB"
    ]


def test_the_quantities_of_a_fleet_by_hand() -> None:
    same = {"device": "mid", "latency": "70 ms", "variation": 0.1}
    entries = [{"count": 1, **same, "speed": f"{i} GFLOP/s"} for i in range(1, 22)]
    groups = [GroupConfig.model_validate(entry) for entry in entries]
    rows = preview.fleet(build_fleet(groups, ServerConfig(), Key.root(0))).rows
    assert [row[0] for row in rows] == list(QUANTITIES)
    assert rows[0] == ("speed", "1 GFLOP/s", "2 GFLOP/s", "11 GFLOP/s", "20 GFLOP/s", "21 GFLOP/s")
    told = {name: numbers for name, *numbers in rows}
    assert told["variation"] == ["0.1"] * 5
    assert told["latency"] == ["70 ms"] * 5


def test_memory_that_limits_no_job_is_unlimited() -> None:
    groups = [GroupConfig.model_validate({"count": 2, "device": "high"})]
    table = preview.fleet(build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear"))
    (row,) = [row for row in table.rows if row[0] == "memory_bandwidth"]
    assert set(row[1:]) == {"unlimited"}


def test_the_laws_of_load_are_told() -> None:
    entry = {"count": 2, "load": {"distribution": "lognormal", "sigma": 0.5}}
    groups = [GroupConfig.model_validate(one) for one in (entry, {"count": 1})]
    notes = preview.fleet(build_fleet(groups, ServerConfig(), Key.root(0))).notes
    assert notes == ["load of mid: lognormal, mean 1, sigma 0.5, drawn for each job"]
