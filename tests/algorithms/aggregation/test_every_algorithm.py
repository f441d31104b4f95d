"""Every algorithm is served by rules of aggregation, or refuses them with the reason."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.aggregation.base import Aggregation, AttackersConfig, U, Warn
from fedsim.algorithms.aggregation.by_coordinate import Median
from fedsim.algorithms.aggregation.krum import Krum
from fedsim.algorithms.aggregation.norm_clipping import NormClipping, NormClippingConfig
from fedsim.algorithms.base import Algorithm
from fedsim.algorithms.common.model_rounds import mean_of_models
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.config import Config
from fedsim.errors import RunError, UserError
from fedsim.params import Tree, form_of
from fedsim.plugins import available
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.wire import ModelUpdate, counted, message

FOUND = {found.name: found.plugin for found in available("fedsim.algorithms")}
PLUGINS = {name: plugin for name, plugin in FOUND.items() if issubclass(plugin, Algorithm)}
SERVED = [name for name, plugin in PLUGINS.items() if plugin.own_aggregation is None]
PARAMS: dict[str, list[dict[str, Any]]] = {
    "ifca": [{}, {"option": "grad_avg"}, {"shared_base": True}],
    "scaffold": [{}, {"option": "I"}],
}


CASES = [(name, one) for name in SERVED for one in PARAMS.get(name, [{}])]


class Heaviest(Aggregation[Config]):
    """Takes the update of the client with the most samples, and remembers how many there were."""

    def __init__(self) -> None:
        super().__init__(Config())
        self.numbers: list[int] = []

    is_robust = True

    def combined(self, updates: Sequence[U], start: Tree | None, warn: Warn) -> U:
        self.numbers.append(len(updates))
        return max(updates, key=lambda update: update.num_samples)


def test_there_are_some_of_either_kind() -> None:
    assert {"fedavg", "fedprox", "scaffold", "fedbuff", "fedadam", "ditto", "pfedme", "fedper"} <= {*SERVED}
    assert not {"fedmd", "local", "feddf", "fedasync", "ktpfl", "pfedhn"} & {*SERVED}


@pytest.mark.parametrize(("name", "params"), CASES)
def test_a_rule_decides_what_the_server_makes_of_all_replies(
    name: str, params: dict[str, Any], world: Any
) -> None:
    rule, clients = Heaviest(), 4
    algorithm = world.algorithm(name, **params) if params else world.quick(name)
    training = {"epochs": 1} if name != "l2sgd" else {}
    plain = world.run(algorithm, rounds=2, training=training)
    ruled = world.run(algorithm, rounds=2, training=training, aggregation=rule)
    assert rule.numbers, "it was never asked"
    assert sum(rule.numbers) >= clients
    assert ruled.model_hash != plain.model_hash
    assert ruled.totals == plain.totals


@pytest.mark.parametrize(("name", "params"), CASES)
def test_a_rule_is_given_the_models_of_one_form_as_the_server_has_it(
    name: str, params: dict[str, Any], world: Any
) -> None:
    algorithm, seen = world.algorithm(name, **params) if params else world.quick(name), list[bool]()

    class Clipping(NormClipping):
        def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
            seen.extend(form_of(origin).is_like(form_of(vector)) for vector in vectors)
            return super().combine(vectors, origin, warn)

    rule = Clipping(NormClippingConfig(c=1e-9))
    training = {"epochs": 1} if name != "l2sgd" else {}
    result = world.run(algorithm, rounds=2, training=training, aggregation=rule)
    assert seen
    assert all(seen)
    assert not result.rejections


@pytest.mark.parametrize("shared_base", [False, True])
def test_heads_play_no_part_in_the_shared_base_of_ifca(shared_base: bool, world: Any) -> None:
    algorithm, names = world.algorithm("ifca", shared_base=shared_base), list[int]()

    class Names(Median):
        def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
            names.append(len(vectors[0]))
            return super().combine(vectors, origin, warn)

    world.run(algorithm, rounds=1, aggregation=Names(Config()))
    assert set(names) == ({2, 4} if shared_base else {4})  # of the base alone, and of whole models


class Own(FedAvg[FedAvgConfig]):
    """Takes a mean of its own."""

    async def merge(self, server: Any, state: Any, replies: Any) -> Any:
        return mean_of_models(replies, "uniform")


class Asking(FedAvg[FedAvgConfig]):
    """Calls the merge that it replaces."""

    own_aggregation = None

    async def merge(self, server: Any, state: Any, replies: Any) -> Any:
        return await super().merge(server, state, replies)


def test_a_merge_of_a_private_algorithm_has_to_say_that_it_asks(world: Any) -> None:
    assert FedAvg.own_aggregation is None
    assert not list(world.parts(Asking(FedAvgConfig()), aggregation=Median(Config())).misfits())
    (fault,) = world.parts(Own(FedAvgConfig()), aggregation=Median(Config())).misfits()
    assert "it has its own merge" in str(fault)


@message("partial_update")
class Partial(ModelUpdate):
    """A model, and perhaps something else."""

    more: Tree | None = counted(default=None)


def test_what_is_no_tree_in_each_reply_is_told() -> None:
    tree = {"w": np.zeros(2)}
    updates = [Partial("net", tree, {}, 1, tree), Partial("net", tree, {}, 1)]
    with pytest.raises(
        RunError, match="field 'more' of a 'partial_update' message is not a tree in every reply"
    ):
        Median(Config()).combined(updates, None, print)


@pytest.mark.parametrize("name", [name for name in PLUGINS if name not in SERVED])
def test_others_refuse_rules_with_the_reason(name: str, world: Any) -> None:
    why = PLUGINS[name].own_aggregation
    faults = world.parts(world.quick(name), aggregation=Median(Config())).misfits()
    assert f"aggregation: 'median' cannot serve '{name}': {why}" in "\n".join(map(str, faults))


def test_a_rule_that_counts_all_alike_refuses_discounts_of_stale_replies(world: Any) -> None:
    settings = {"concurrency": 4, "buffer": 2}
    discounting, constant = (
        Buffered(Buffered.Config.model_validate({**settings, "staleness": staleness}))
        for staleness in ("polynomial", "constant")
    )
    algorithm, rule = world.algorithm("fedavg"), Median(Config())
    (fault,) = world.parts(algorithm, pacing=discounting, aggregation=rule).misfits()
    assert str(fault).startswith("participation.pacing.params.staleness: 'median' counts all replies alike")
    assert not world.run(algorithm, pacing=constant, aggregation=rule).rejections


def test_a_cohort_too_small_for_a_rule_is_refused(world: Any) -> None:
    with pytest.raises(UserError, match=r"aggregation\.params: f = 2 attackers are not fewer than half of 4"):
        world.run(world.algorithm("fedavg"), aggregation=Krum(AttackersConfig(f=2)))
