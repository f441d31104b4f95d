"""The twins of scenarios/papers/ keep what their papers' claims rest on (specification 6.4)."""

import re
import shlex
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.engine.executors.base import Due, ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.jobs import ClientSamples, Fit, Job
from fedsim.engine.losses import TRAIN
from fedsim.engine.worker_state import Resources
from fedsim.plugins import available
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import run
from fedsim.scenario import Scenario, build, load_scenario

FOLDER = Path(__file__).parents[1] / "scenarios" / "papers"
TWINS = ("ktpfl", "ktpfl_homogeneous", "perfed_ckt", "persfl", "fedet", "fedme")
OTHER_PUBLIC_SET, OWN_PUBLIC_SET = ("ktpfl", "perfed_ckt"), ("fedet", "fedme")
"""Where the public images come from: another data set, or some that are held out of the clients' own."""
FACTOR = 50
"""Predictions are to be so many times smaller than models."""
MODELS = {"ditto": 2, "mapper": 4}
"""How many models a client of these trains in a round, each for as long as others train their one."""


def twin(name: str, *overrides: str, algorithm: str | None = None) -> Scenario:
    return load_scenario(FOLDER / f"{name}_small.toml", overrides, algorithm=algorithm)


def comparisons(name: str) -> list[tuple[list[str], list[str]]]:
    """Return what the head of a twin compares: the methods of each command, and what is set for them."""
    text = (FOLDER / f"{name}_small.toml").read_text("utf-8").replace("\\\n#", "")
    commands = [shlex.split(line) for line in re.findall(r"fedsim compare .*", text)]
    pairs = [list(pairwise(command)) for command in commands]
    return [
        (
            next(value.split(",") for name, value in options if name == "--algorithms"),
            [value for name, value in options if name == "--set"],
        )
        for options in pairs
    ]


class Counting(NULL):
    """Learns nothing, and counts each client's steps on its own samples."""

    def open(self, resources: Resources) -> None:
        super().open(resources)
        self.steps = Counter[int]()

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Any:
        if isinstance(job, Fit) and TRAIN in job.streams:
            samples = job.streams[TRAIN].samples
            if isinstance(samples, ClientSamples):
                self.steps[samples.client] += job.num_steps
        return super().submit(job, due, step_flops=step_flops)


def work_of(scenario: Scenario) -> Counter[int]:
    """Return how many steps on its own samples each client makes in three rounds, without the end's."""
    parts = build(scenario)
    config = parts.algorithm.config
    # Fine-tuning, PersFL's students and Per-FedAvg's adaptation come after the rounds.
    settings = ("finetune_epochs", "distill_epochs", "adapt_steps")
    ends = {name: 0 for name in settings if name in type(config).model_fields}
    algorithm = type(parts.algorithm)(config.model_copy(update=ends))
    executor = Counting(ExecutorConfig())
    run(replace(parts, algorithm=algorithm, executor=executor, rounds=3))
    return executor.steps


def mean_params(parts: Parts) -> float:
    models = [parts.fleet.model(client) for client in range(len(parts.fleet))]
    return float(np.mean([parts.architectures[label].num_params for label in models]))


@pytest.mark.parametrize("name", [*OTHER_PUBLIC_SET, *OWN_PUBLIC_SET])
def test_the_public_set_is_of_the_domain_of_the_papers(name: str) -> None:
    data = twin(name).data
    assert data.public.size >= 500
    assert (data.public.augment == "fedet") == (name == "fedet")
    if name in OWN_PUBLIC_SET:
        assert data.public.source is None  # held out, so that no client has any of it
    else:
        assert data.public.source is not None
        assert data.public.source.name != data.name


def test_the_knowledge_coefficients_are_compared_with_both_public_sets() -> None:
    foreign, own = (twin("ktpfl", *changes).data.public for _, changes in comparisons("ktpfl"))
    assert foreign.source is not None
    assert own.source is None
    assert own.size >= 500


@pytest.mark.parametrize("name", ["ktpfl", "perfed_ckt"])
def test_predictions_are_small_beside_the_mean_model(name: str) -> None:
    """``|P| N (C + 1) << d``: KT-pFL sends each client one teacher's, PerFed-CKT those of all clusters."""
    scenario = twin(name)
    params: Any = scenario.algorithm.params
    per_round = params.public_per_round if name == "ktpfl" else scenario.data.public.size
    assert per_round >= 500
    copies = getattr(params, "clusters", 1) + 1
    parts = build(scenario)
    assert mean_params(parts) >= FACTOR * per_round * parts.data.task.num_outputs * copies


def test_the_large_model_is_large_beside_the_small_ones() -> None:
    parts = build(twin("fedet"))
    assert parts.architectures["large"].num_params >= 3.5 * mean_params(parts)


@pytest.mark.parametrize("name", TWINS)
def test_clients_have_few_samples(name: str) -> None:
    parts = build(twin(name))
    assert 20 <= np.mean(parts.data.sizes("train")) <= 300


@pytest.mark.parametrize(
    ("name", "share"),
    [("fedet", 0.1), ("persfl", 1.0), ("fedme", 1.0), ("ktpfl", 1.0), ("ktpfl_homogeneous", 1.0)],
)
def test_as_many_take_part_as_in_the_paper(name: str, share: float) -> None:
    parts = build(twin(name))
    clients = parts.data.num_clients
    assert (parts.clients_per_round or clients) == share * clients


def test_skews_of_several_kinds_are_among_them() -> None:
    def partition(name: str) -> Any:
        return twin(name).data.partition

    assert partition("ktpfl").name == partition("ktpfl_homogeneous").name == "all_uneven"
    assert partition("persfl").name == "classes_per_client"
    assert partition("perfed_ckt").params.alpha == partition("fedet").params.alpha == 0.1
    assert partition("fedme").params.alpha_label == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_compared_methods_do_equal_work(name: str) -> None:
    """In every round each client makes Local's steps on its own samples, or those for each of its models."""
    for methods, overrides in comparisons(name):
        usual = work_of(twin(name, *overrides, "algorithms.local.follow_selection=true", algorithm="local"))
        assert usual.total() > 0
        for method in set(methods) - {"centralized", "l2sgd"}:  # in centralized no client trains
            work = work_of(twin(name, *overrides, algorithm=method))
            expected = Counter({client: MODELS.get(method, 1) * steps for client, steps in usual.items()})
            assert work == expected, method


def test_l2sgd_does_equal_work_on_average() -> None:
    scenario = twin("ktpfl_homogeneous", algorithm="l2sgd")
    params: Any = scenario.algorithm.params
    usual = work_of(twin("ktpfl_homogeneous", algorithm="fedavg"))
    assert 1 / params.probability == pytest.approx(np.mean([*usual.values()]) / 3, rel=0.05)


@pytest.mark.slow
def test_a_method_that_trains_everybody_is_seen_to_do_more() -> None:
    everybody = twin("perfed_ckt", "algorithms.local.follow_selection=false", algorithm="local")
    assert work_of(everybody).total() == 5 * work_of(twin("perfed_ckt", algorithm="perfed_ckt")).total()


SHARED = ("order", "public_per_round", "distill_batch_size", "distill_epochs", "lambdas", "temperatures")


@pytest.mark.parametrize("name", TWINS)
def test_methods_that_have_the_same_setting_have_it_alike(name: str) -> None:
    """Of what the methods' own tables say, which beside the work decides how they compare."""
    scenario = twin(name)
    own: Any = scenario.algorithm.params
    for other in scenario.algorithms.values():
        params: Any = other.params
        for field in SHARED:
            if hasattr(own, field) and hasattr(params, field):
                assert getattr(params, field) == getattr(own, field), f"{other.name}: {field}"
        assert getattr(params, "pretrain_epochs", 0) == 0


def test_all_of_fedmes_methods_that_the_paper_fine_tunes_are_fine_tuned() -> None:
    tuned = {}
    for method in ("local", "centralized", "fedavg_ft", "fedme"):
        exchanges = build(twin("fedme", algorithm=method)).algorithm.exchanges
        tuned[method] = "finetune" in [exchange.name for exchange in exchanges]
    assert tuned == {"local": False, "centralized": True, "fedavg_ft": True, "fedme": True}


def test_a_twin_compares_every_algorithm() -> None:
    compared = {method for name in TWINS for methods, _ in comparisons(name) for method in methods}
    # No paper compares with the asynchronous ones.
    names = {found.name for found in available("fedsim.algorithms")}
    assert compared == names - {"fedasync", "fedbuff"}
