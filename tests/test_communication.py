"""What the five papers' methods communicate at the papers' sizes, by the ledger and by formulas (2.2)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.jobs import Job, Predict
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build, load_scenario

Tables = dict[str, Any]


class Guessing(NULL):
    """The null executor, but no two predictions are alike, so that there is something to cluster."""

    def _result(self, job: Job) -> Any:
        answer = super()._result(job)
        if not isinstance(job, Predict):
            return answer
        self.predicted = getattr(self, "predicted", 0) + 1
        return Key.root(self.predicted).numpy().standard_normal(answer.shape, np.float32)


@dataclass(frozen=True)
class Outcome:
    """What two rounds came to, and the function that gives start values."""

    result: RunResult
    initial: Callable[[str], Model]

    def parameters(self, number: int) -> int:
        """Return the parameters communicated in a round, both ways."""
        (row,) = (row for row in self.result.rounds if row.round == number)
        return row.traffic.parameters_up + row.traffic.parameters_down

    def check_frames(self, *arrays_bytes: int) -> None:
        """Check that the frames have arrays of these lengths, in order, and envelopes."""
        lengths = self.result.ledger.columns()["bytes"].tolist()
        for num_bytes, of_arrays in zip(lengths, arrays_bytes, strict=True):
            assert 0 < num_bytes - of_arrays < MAX_ENVELOPE


def array_bytes(model: Model) -> int:
    """Return what a model's arrays take on the wire: parameters and buffers, which travel as well."""
    return sum(array.nbytes for tree in (model.params, model.buffers) for array in tree.values())


MAX_ENVELOPE = 20_000
"""Bytes of a frame beside its arrays: names and shapes of up to two hundred of them."""
GREY, COLOUR = [1, 28, 28], [3, 32, 32]


def outcome(
    algorithm: str,
    params: Tables | None = None,
    *,
    models: Tables,
    count: int = 4,
    asked: int = 4,
    **more: Any,
) -> Outcome:
    samples = {"samples": 100, "input_shape": more.get("shape", GREY), "num_classes": 10}
    tables = {
        "run": {"name": "communication", "rounds": 2},
        "data": {"name": "sizes", "params": samples, "public": {"size": more.get("public", 0)}},
        "models": models,
        "fleet": [{"count": count, "device": "server", "memory": "1 TB", **more.get("fleet", {})}],
        "server": {"memory": "1 TB", **more.get("server", {})},
        "network": {"model": "none"},
        "engine": {"executor": "null"},
        "participation": {"clients_per_round": asked, "client_timeout": "100 d"},
        "algorithm": {"name": algorithm, "params": params or {}},
    }
    parts = replace(build(load_scenario(tables)), executor=Guessing(Guessing.Config()))
    return Outcome(run(parts), parts.initial())


def test_ktpfl_sends_55_times_less_than_fedavg_with_its_cnn_and_50_times_with_the_index_lists() -> None:
    fedavg = outcome("fedavg", models={"cnn": {}})
    ktpfl = outcome("ktpfl", models={"cnn": {}}, public=6000)
    assert fedavg.parameters(1) == 4 * 2 * 1_663_370
    assert ktpfl.parameters(1) == 4 * 2 * 3000 * 10
    assert fedavg.parameters(1) / ktpfl.parameters(1) == pytest.approx(55.4, abs=0.1)
    # Two rounds of four clients: models both ways; the index list of 8 bytes a sample, and logits both ways.
    fedavg.check_frames(*[6_653_480] * 16)
    ktpfl.check_frames(*([8 * 3000] * 4 + [4 * 3000 * 10] * 8) * 2)
    assert pytest.approx(50.4, abs=0.1) == 2 * 6_653_480 / (8 * 3000 + 2 * 4 * 3000 * 10)


@pytest.mark.slow
def test_perfed_ckt_sends_308_times_fewer_parameters_than_fedavg_with_vgg11() -> None:
    vgg = {"vgg": {"params": {"depth": 11, "form": "cifar"}}}
    shared: dict[str, Any] = {"models": vgg, "shape": COLOUR, "asked": 2}
    fedavg = outcome("fedavg", **shared)
    perfed = outcome("perfed_ckt", {"clusters": 2}, public=2000, **shared)
    assert fedavg.parameters(2) == 2 * 2 * 9_231_114
    (row,) = (row for row in perfed.result.rounds if row.round == 2)
    assert row.traffic.parameters_up == 2 * 2000 * 10
    assert row.traffic.parameters_down == 2 * 2 * 2000 * 10
    assert fedavg.parameters(2) / perfed.parameters(2) == pytest.approx(308, abs=0.5)


@pytest.mark.slow
def test_fedet_sends_3_65_times_less_than_fedavg_with_vgg19() -> None:
    # Three clients stand for a hundred: each has another of the three small nets.
    models = {
        "vgg19": {"name": "vgg", "params": {"depth": 19, "form": "fedma", "representation": {}}},
        "resnet18": {"params": {"norm": "none", "representation": {}}},
        "resnet8": {"params": {"representation": {}}},
        "cnn_ckt": {"params": {"representation": {}}},
    }
    shared: dict[str, Any] = {"models": models, "shape": COLOUR, "count": 3, "asked": 3}
    shared["server"] = {"model": "vgg19"}
    small = {"models": {"resnet18": 1, "resnet8": 1, "cnn_ckt": 1}}
    fedet = outcome("fedet", {"server_steps": 1}, public=64, fleet=small, **shared)
    fedavg = outcome("fedavg", fleet={"model": "vgg19"}, **shared)
    for number in (1, 2):
        assert fedet.parameters(number) == 2 * (11_488_842 + 5_221_962 + 431_548)
        assert fedavg.parameters(number) == 3 * 2 * 20_879_306
    assert fedavg.parameters(1) / fedet.parameters(1) == pytest.approx(3.65, abs=0.01)
    fedavg.check_frames(*[4 * 20_879_306] * 12)  # without normalisation nothing but parameters travels


@pytest.mark.parametrize(
    ("label", "params"), [("cnn", {}), pytest.param("resnet18", {"width": 4}, marks=pytest.mark.slow)]
)
def test_fedme_sends_twice_what_fedavg_does(label: str, params: Tables) -> None:
    # The ResNet normalises: its running statistics are part of a model, and travel with it.
    models = {label: {"params": params}}
    fedavg = outcome("fedavg", models=models)
    fedme = outcome("fedme", models=models, public=100)
    count = 4
    model = fedme.initial(label)
    assert bool(model.buffers) == (label == "resnet18")
    one = array_bytes(model)
    # FedAvg: models down, models up. FedMe: an architecture's name, whose start values are known; then the
    # exchanged model down, a pair up, the chosen one down.
    fedavg.check_frames(*[one] * count * 2 * 2)
    fedme.check_frames(*[0] * count, *([one] * count + [2 * one] * count + [one] * count) * 2)
    for number in (1, 2):
        assert fedme.parameters(number) == 2 * fedavg.parameters(number)
