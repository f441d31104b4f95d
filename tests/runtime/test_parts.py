from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import UserError
from fedsim.fleet import Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.network.cells import Cells
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.rng import Key


def test_a_fleet_is_as_large_as_the_population(world: Any) -> None:
    parts = world.make_parts(world.Scripted(), sizes=(1, 1, 1))
    with pytest.raises(UserError, match="the fleet has 3 devices and the data 2 clients"):
        replace(parts, data=world.make_data([1, 1]))


def test_start_values_are_made_once_and_depend_on_seed_and_label_alone(world: Any) -> None:
    parts = world.make_parts(world.Scripted())
    initial = parts.initial()
    assert initial("linear") is initial("linear")
    assert parts.initial()("linear").digest() == initial("linear").digest()
    assert replace(parts, seed=1).initial()("linear").digest() != initial("linear").digest()
    assert parts.key == Key.root(0)


def test_who_has_samples_is_eligible(world: Any) -> None:
    eligible = world.make_parts(world.Scripted(), sizes=(0, 2, 0, 1)).eligible()
    assert eligible.dtype == np.int32
    assert eligible.tolist() == [1, 3]


def _fleet(*memories: dict[str, Any] | str, count: int = 2) -> Fleet:
    groups = [GroupConfig.model_validate({"count": count, "memory": memory}) for memory in memories]
    return build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear")


# A linear model of 2 inputs and 2 outputs trained with batches of 32: 6 parameters and their gradients, and
# for each sample 2 inputs, a label and 2 logits, 48 + 768 B.
NEEDED = 816


def test_who_has_the_memory_is_eligible(world: Any) -> None:
    fleet = _fleet("815 B", "816 B", {"distribution": "uniform", "low": "1 B", "high": "1632 B"}, count=20)
    parts = world.make_parts(world.Scripted(), sizes=[0, *[1] * 19, 0, *[1] * 39], fleet=fleet)
    assert parts.needed_bytes("linear") == NEEDED
    roomy = fleet.values("memory") >= NEEDED
    assert not roomy[:20].any()
    assert roomy[20:40].all()
    assert 0 < roomy[40:].sum() < 20
    assert parts.holds_job().tolist() == roomy.tolist()
    assert parts.eligible().tolist() == np.flatnonzero(roomy)[1:].tolist()


def test_only_who_has_the_memory_is_asked(world: Any) -> None:
    result, _ = world.play(algorithm := world.Scripted(), sizes=(1, 1, 1, 1), fleet=_fleet("1 MB", "1 kB"))
    assert [who for _, who, _ in algorithm.noted("merge")] == [(0, 1, 2, 3)]
    result, _ = world.play(algorithm := world.Scripted(), sizes=(1, 1, 1, 1), fleet=_fleet("815 B", "1 MB"))
    assert [who for _, who, _ in algorithm.noted("merge")] == [(2, 3)]
    assert result.rounds[0].asked == 2


def test_the_optimiser_and_the_batch_decide(world: Any) -> None:
    parts = world.make_parts(world.Scripted(), sizes=(1, 1), fleet=_fleet("816 B"))
    assert parts.eligible().tolist() == [0, 1]
    for training in (TrainingConfig(momentum=0.9), TrainingConfig(batch_size=33)):
        with pytest.raises(UserError):
            replace(parts, training=training).eligible()
    smaller = replace(parts, training=TrainingConfig(optimiser="adam", batch_size=30))
    assert smaller.eligible().tolist() == [0, 1]


def test_a_fleet_in_which_nobody_has_the_memory_is_refused(world: Any) -> None:
    # The one with enough memory has no samples.
    parts = world.make_parts(
        world.Scripted(), sizes=(1, 0, 0, 0, 0, 2), fleet=_fleet("400 B", "1 MB", "600 B")
    )
    with pytest.raises(UserError) as caught:
        parts.eligible()
    assert str(caught.value) == (
        "no client that has training samples can hold its job: training 'linear' with batches of 32 needs "
        "816 B, the largest device has 600 B; take a smaller model or batch, or devices with more memory"
    )
    with pytest.raises(UserError, match="no client has a training sample"):
        world.make_parts(world.Scripted(), sizes=(0, 0)).eligible()


def test_links_that_follow_traces_need_a_network_that_does(world: Any, tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text("at_s,Mbps\n0,4\n1,0\n")
    group = GroupConfig.model_validate({"count": 3, "up_trace": str(path)})
    fleet = build_fleet([group], ServerConfig(), Key.root(0), default_model="linear")
    with pytest.raises(
        UserError, match=r"links of the fleet follow traces, and network model .* has constant ones"
    ):
        world.make_parts(world.Scripted(), fleet=fleet)
    world.make_parts(world.Scripted(), fleet=fleet, network=FLUID(FLUID.Config()))


def test_cells_are_on_the_way_to_the_server_where_the_network_has_them(world: Any) -> None:
    of = np.array([0, -1, 0], np.int32)
    cells = Cells(["A"], of, up=[2e3], down=[inf], latency_s=[0.5])
    with pytest.raises(
        UserError, match=r"clients share links of cells, and in network model .* they share none"
    ):
        world.make_parts(world.Scripted(), cells=cells)
    plain = world.make_parts(world.Scripted(), network=FLUID(FLUID.Config()))
    parts = replace(plain, cells=cells)
    links, before = parts.links(), plain.links()
    assert [links.egress_bps(client) for client in range(3)] == [2e3, before.egress_bps(1), 2e3]
    assert [links.ingress_bps(client) - before.ingress_bps(client) for client in range(3)] == [0, 0, 0]
    for client, more_s in enumerate((0.5, 0.0, 0.5)):
        assert links.between_s(client, -1) == pytest.approx(before.between_s(client, -1) + more_s, rel=1e-12)
    # Forecasts count capacity and latency of a cell.
    alone_s = parts.network.alone_s(links, 0, -1, 1000)
    assert alone_s == pytest.approx(before.between_s(0, -1) + 0.5 + 4.0, rel=1e-12)
