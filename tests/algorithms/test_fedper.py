"""FedPer: the specification's sanity checks (5.D.13)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.config import Config
from fedsim.models import Architecture, Net
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.params import Model
from fedsim.task import Task
from fedsim.wire import ModelUpdate
from tests.algorithms.stand_ins import Normed, Server, normed

BASE, HEAD = 64 * 16 + 16, 16 * 10 + 10
PLAIN: dict[str, Any] = {"verify": False}


def _deep(world: Any, **widths: int) -> dict[str, Architecture]:
    """Return nets whose lower hidden layers are alike, by label and the width of the upper one."""
    task = world.data().task
    return {
        label: Architecture(label, MLP(MLP.Config(hidden=(8, width))), task)
        for label, width in widths.items()
    }


def test_payload_is_the_base(world: Any) -> None:
    totals = {
        layers: world.run(world.algorithm("fedper", personal_layers=layers), **PLAIN).totals
        for layers in (0, 1)
    }
    assert totals[1].parameters_up == totals[1].parameters_down == 12 * BASE
    assert totals[0].parameters_up - totals[1].parameters_up == 12 * HEAD
    less = totals[0].bytes_up - totals[1].bytes_up
    assert 12 * 4 * HEAD < less < 12 * (4 * HEAD + 200)  # and the names of two arrays


def test_bases_are_averaged_with_their_statistics_and_heads_stay(world: Any) -> None:
    result = world.run(world.algorithm("fedper"), architectures=normed(world), **PLAIN)
    own = [models["personal"] for models in result.models.values()]
    for name in ("body.fc1.linear.weight", "body.norm.weight"):
        assert len({model.params[name].tobytes() for model in own}) == 1
    assert len({model.buffers["body.norm.running_mean"].tobytes() for model in own}) == 1
    assert len({model.params["head.weight"].tobytes() for model in own}) == 4
    assert result.totals.parameters_up == 12 * (64 * 12 + 12 + 24)


def test_statistics_above_the_cut_stay(world: Any) -> None:
    algorithm = world.algorithm("fedper", personal_layers=2)
    result = world.run(algorithm, architectures=normed(world), **PLAIN)
    assert result.totals.parameters_up == 12 * (64 * 12 + 12)
    own = [models["personal"] for models in result.models.values()]
    assert len({model.buffers["body.norm.running_mean"].tobytes() for model in own}) == 4


def test_mean_by_hand(world: Any) -> None:
    def reply(client: int, value: float, num_samples: int) -> Reply:
        base = Model("mlp[:2]", {"w": np.full(2, value, np.float32)})
        return Reply(client, 0, "train", 0, 0, 1.0, ModelUpdate.of(base, num_samples))

    replies = [reply(0, 1.0, 10), reply(1, 4.0, 20)]
    merged = asyncio.run(world.algorithm("fedper").merge(Server(), None, replies))
    assert merged.architecture == "mlp[:2]"
    assert merged.params["w"].tolist() == [3.0, 3.0]


def test_a_client_that_was_never_asked_has_the_initial_head(world: Any) -> None:
    result = world.run(world.algorithm("fedper"), clients_per_round=1, rounds=1, **PLAIN)
    start = world.parts(world.algorithm("fedper")).initial()("mlp")
    heads = [models["personal"].params["head.weight"] for models in result.models.values()]
    assert sum(np.array_equal(head, start.params["head.weight"]) for head in heads) == 3


@pytest.mark.parametrize("every_way", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_heads_may_differ_above_bases_that_are_alike(every_way: bool, world: Any) -> None:
    changes = {
        "architectures": _deep(world, mlp=8, linear=24),
        "models": ("mlp", "linear"),
        "rounds": 2,
        **PLAIN,
    }

    def made() -> Any:
        return world.algorithm("fedper", personal_layers=2)

    result = world.check_every_way(made, **changes) if every_way else world.run(made(), **changes)
    own = [models["personal"] for models in result.models.values()]
    assert [model.architecture for model in own] == ["mlp", "mlp", "linear", "linear"]
    assert len({model.params["body.fc1.linear.weight"].tobytes() for model in own}) == 1
    assert result.totals.parameters_up == 8 * (64 * 8 + 8)


def test_bases_that_differ_are_refused(world: Any) -> None:
    parts = world.parts(
        world.algorithm("fedper"), architectures=_deep(world, mlp=8, linear=24), models=("mlp", "linear")
    )
    assert list(map(str, parts.misfits())) == [
        "models.linear: its layers below the 1 personal ones are not like those of the server's model 'mlp', "
        "with which they are averaged — let them be alike, or set algorithm.params.personal_layers higher"
    ]


def test_more_layers_than_there_are_are_refused(world: Any) -> None:
    parts = world.parts(world.algorithm("fedper", personal_layers=4))
    assert list(map(str, parts.misfits())) == [
        "algorithm.params.personal_layers: 4, and the layers of model 'mlp' are flatten, fc1, head — "
        "give at most 3"
    ]


class Whole(Normed):
    def build(self, task: Task) -> Net:
        class Twice(Net):
            def forward(self, x: Any) -> Any:
                return 2 * self.head(self.body(x))

        whole = super().build(task)
        return Twice(whole.body, whole.head)


def test_a_net_without_cuts_is_refused(world: Any) -> None:
    nets = {"mlp": Architecture("mlp", Whole(Config()), world.data().task)}
    (fault,) = world.parts(world.algorithm("fedper"), architectures=nets).misfits()
    assert "model 'mlp' cannot be cut: its net, a Twice, computes in its own way" in str(fault)


@pytest.mark.parametrize(
    ("label", "names", "reason"),
    [
        ("mlp", "ab", "architecture 'mlp', not 'mlp[:2]'"),
        ("mlp[2:]", "ab", "architecture 'mlp[2:]', not 'mlp[:2]'"),
        ("mlp[:2]", "abc", "other names than architecture 'mlp[:2]' has"),
        ("mlp[:2]", "", "other names than architecture 'mlp[:2]' has"),
    ],
)
def test_another_part_is_rejected(label: str, names: str, reason: str, world: Any) -> None:
    base, other = (
        Model(its, {name: np.zeros(2, np.float32) for name in those})
        for its, those in (("mlp[:2]", "ab"), (label, names))
    )
    reply = Reply(0, 0, "train", 0, 0, 1.0, ModelUpdate.of(other, 5))
    assert world.algorithm("fedper").vet(SimpleNamespace(), base, reply) == reason
