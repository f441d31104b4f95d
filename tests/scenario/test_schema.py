import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.ranges import MAX_SEED
from fedsim.scenario import Scenario, load_scenario, resolved_toml

Load = Callable[..., Any]

RICH = """
speed = { distribution = "lognormal", median = "2 GFLOP/s", sigma = 0.3 }
memory = { distribution = "choice", values = ["4 GB", "8 GB"], weights = [3, 1] }
model = "a"
[[fleet]]
count = 2
device = "edge_gpu"
latency = { distribution = "normal", mean = "50 ms", deviation = "20 ms", minimum = "5 ms" }
model = "b"
[models.a]
name = "mlp"
params.hidden = [3]
[models.b]
name = "linear"
[data]
limit = 900
[data.public]
size = 50
[data.partition]
name = "dirichlet_class"
params.alpha = 0.3
[algorithm]
name = "fedmd"
params.digest_lr = 0.001
[algorithms.fedprox]
mu = 0.1
[participation]
selector = "uniform"
client_timeout = "90 s"
[server]
up = "1 Gbit/s"
"""


@pytest.mark.parametrize(
    "more",
    [
        "",
        RICH,
        "[data]\nname = 'sizes'\n[engine]\nexecutor = 'null'\n",
        "[data.public]\nsize = 9\nsource = 'mnist'\naugment = 'fedet'\nheld = 'server'\n",
        "[data]\nsplit = [[0.3, 0.35, 0.35], [0.5, 0.25, 0.25]]\n",
        "[data]\nname = 'writers'\nglobal_test_users = 0.2\npublic.users = 0.1\n",
    ],
    ids=["small", "rich", "counts", "public", "splits", "users"],
)
def test_it_loads_to_an_equal_scenario(load: Load, more: str) -> None:
    scenario = load(more, overrides=["run.name=other"])
    text = resolved_toml(scenario)
    again = load(text=text)
    assert again == scenario
    assert resolved_toml(again) == text


def test_it_says_everything(load: Load) -> None:
    tables = tomllib.loads(resolved_toml(load()))
    assert tables["data"]["split"] == [0.7, 0.1, 0.2]
    assert tables["models"] == {"mlp": {"name": "mlp", "params": {"hidden": [128, 128]}}}
    assert tables["algorithm"] == {"name": "fedavg", "params": {"weighting": "samples"}}
    assert tables["participation"]["client_timeout"] == "1 h"
    assert tables["participation"]["selector"] == {"name": "uniform", "params": {}}
    assert tables["fleet"][0]["memory"] == "4 GB"
    assert tables["engine"]["workers"] == "auto"
    missing = set(Scenario.model_fields) - set(tables)
    # Of these this scenario has none.
    assert missing == {"aggregation", "algorithms", "cell", "codec", "edge", "energy", "faults"}


def test_a_comparison_can_be_taken_up_again(load: Load) -> None:
    chosen = load(RICH.replace('model = "b"', 'model = "a"'), algorithm="fedprox")
    again = load(text=resolved_toml(chosen))
    assert again == chosen
    assert again.algorithms["fedmd"].params.digest_lr == 0.001
    assert load(text=resolved_toml(chosen), algorithm="fedmd").algorithm.params.digest_lr == 0.001


@given(
    lr=st.floats(1e-9, 1e3),
    seed=st.integers(0, MAX_SEED),
    up=st.floats(1e-3, 1e12),
    timeout=st.floats(1e-6, 8e8),
    hidden=st.lists(st.integers(1, 9), min_size=1),
    name=st.text(min_size=1, max_size=9),
)
def test_any_values_survive(
    tmp_path_factory: pytest.TempPathFactory,
    lr: float,
    seed: int,
    up: float,
    timeout: float,
    hidden: list[int],
    name: str,
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.toml"
    path.write_text("[run]\nrounds = 1\n[[fleet]]\ncount = 1\n")
    overrides = [
        f"training.lr={lr!r}",
        f"fleet.0.up={up!r} bit/s",
        f"participation.client_timeout={timeout!r} s",
        f"models.mlp.params.hidden={hidden}",
    ]
    scenario = load_scenario(path, overrides, seed=seed)
    group = scenario.fleet[0].model_copy(update={"name": name})
    scenario = scenario.model_copy(update={"fleet": (group,)})
    path.write_text(resolved_toml(scenario), "utf-8")
    assert load_scenario(path) == scenario
