"""What the five papers' methods communicate at the papers' sizes, by the ledger and by the formulas (2.2).

Nothing is learned here: sample counts, predictions out of nowhere, two rounds; the frames are real.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.jobs import Job, Predict
from fedsim.rng import Key
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build, load_scenario


class Guessing(NULL):
    """The null executor, but no two predictions are alike, so that there is something to cluster."""

    def _answer(self, job: Job) -> Any:
        answer = super()._answer(job)
        if not isinstance(job, Predict):
            return answer
        self.predicted = getattr(self, "predicted", 0) + 1
        return Key.root(self.predicted).numpy().standard_normal(answer.shape, np.float32)


SCENARIO = """
[run]
name = "communication"
rounds = 2

[data]
name = "sizes"
params = {{ samples = 100, input_shape = {shape}, num_classes = 10 }}
public = {{ size = {public} }}

{models}

[[fleet]]
count = {count}
device = "server"
memory = "1 TB"
{fleet}

[server]
memory = "1 TB"
{server}

[network]
model = "none"

[engine]
executor = "null"

[participation]
clients_per_round = {asked}
client_timeout = "100 d"

[algorithm]
name = "{algorithm}"
params = {params}
"""

GREY, COLOUR = [1, 28, 28], [3, 32, 32]


def result(tmp_path: Path, algorithm: str, params: str = "{}", **values: Any) -> RunResult:
    """Run two rounds."""
    given: dict[str, Any] = {
        "count": 20,
        "asked": 20,
        "public": 0,
        "shape": GREY,
        "fleet": "",
        "server": "",
        **values,
    }
    path = tmp_path / "communication.toml"
    path.write_text(SCENARIO.format(algorithm=algorithm, params=params, **given))
    return run(replace(build(load_scenario(path)), executor=Guessing(Guessing.Config())))


def parameters(result: RunResult, number: int) -> int:
    """Return the parameters communicated in a round, both ways."""
    (row,) = (row for row in result.rounds if row.round == number)
    return row.traffic.parameters_up + row.traffic.parameters_down


def test_ktpfl_sends_55_times_less_than_fedavg_with_its_cnn(tmp_path: Path) -> None:
    fedavg = result(tmp_path, "fedavg", models="[models.cnn]")
    ktpfl = result(tmp_path, "ktpfl", models="[models.cnn]", public=6000)
    assert parameters(fedavg, 1) == 20 * 2 * 1_663_370
    assert parameters(ktpfl, 1) == 20 * 2 * 3000 * 10
    assert parameters(fedavg, 1) / parameters(ktpfl, 1) == pytest.approx(55.4, abs=0.1)
    totals = ktpfl.totals
    # Logits both ways and the index list of 8 bytes a sample: the payload of arrays.
    arrays = 2 * 20 * (2 * 4 * 3000 * 10 + 8 * 3000)
    assert arrays <= totals.bytes_up + totals.bytes_down <= 1.01 * arrays
    with_indices = 2 * 20 * 2 * 6_653_480 / arrays
    assert with_indices == pytest.approx(50.4, abs=0.1)


def test_perfed_ckt_sends_308_times_fewer_parameters_than_fedavg_with_vgg11(tmp_path: Path) -> None:
    vgg = '[models.vgg]\nparams = { depth = 11, form = "cifar" }'
    shared: dict[str, Any] = {"models": vgg, "shape": COLOUR, "count": 100, "asked": 10}
    fedavg = result(tmp_path, "fedavg", **shared)
    perfed = result(tmp_path, "perfed_ckt", "{ clusters = 2 }", public=2000, **shared)
    assert parameters(fedavg, 2) == 10 * 2 * 9_231_114
    (row,) = (row for row in perfed.rounds if row.round == 2)
    assert row.traffic.parameters_up == 10 * 2000 * 10
    assert row.traffic.parameters_down == 10 * 2 * 2000 * 10
    assert parameters(fedavg, 2) / parameters(perfed, 2) == pytest.approx(308, abs=0.5)


def test_fedet_sends_3_65_times_less_than_fedavg_with_vgg19(tmp_path: Path) -> None:
    models = """
[models.vgg19]
name = "vgg"
params = { depth = 19, form = "fedma", representation = {} }
[models.resnet18]
params = { norm = "none", representation = {} }
[models.resnet8]
params = { representation = {} }
[models.cnn_ckt]
params = { representation = {} }
"""
    shared: dict[str, Any] = {
        "models": models,
        "shape": COLOUR,
        "count": 30,
        "asked": 30,
        "server": 'model = "vgg19"',
    }
    fedet = result(
        tmp_path,
        "fedet",
        "{ server_steps = 1 }",
        public=64,
        fleet="models = { resnet18 = 1, resnet8 = 1, cnn_ckt = 1 }",
        **shared,
    )
    mean = np.mean([11_488_842, 5_221_962, 431_548])
    assert parameters(fedet, 1) == pytest.approx(30 * 2 * mean)
    assert 20_879_306 / mean == pytest.approx(3.65, abs=0.01)


def test_fedme_sends_twice_what_fedavg_does(tmp_path: Path) -> None:
    fedavg = result(tmp_path, "fedavg", models="[models.cnn]")
    fedme = result(tmp_path, "fedme", models="[models.cnn]", public=100)
    for number in (1, 2):
        assert parameters(fedme, number) == 2 * parameters(fedavg, number)
    # Its opening upload apart.
    (opening,) = (row for row in fedme.rounds if row.round == 0)
    assert opening.traffic.parameters_up == 20 * 1_663_370
