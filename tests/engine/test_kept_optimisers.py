from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from fedsim.engine.jobs import Fitted
from fedsim.engine.kept_optimisers import Keeping
from fedsim.params import Model, Tree


def model(label: str = "mlp") -> Model:
    return Model(label, {"w": np.zeros(2, np.float32)})


def tree(value: float = 1.0) -> Tree:
    return {"momentum/w": np.full(2, value, np.float32)}


def fitted(states: Mapping[str, Tree], *names: str) -> Fitted:
    return Fitted({name: model() for name in names or ("model",)}, 0.0, 1, states)


def test_a_fit_goes_on_from_the_last_of_its_name() -> None:
    keeping, one = Keeping({}), tree()
    assert keeping.before("train", {"model": model()}, ["model"]) == {}
    keeping.after("train", {"model": model()}, fitted({"model": one}))
    assert keeping.before("train", {"model": model()}, ["model"])["model"] is one
    keeping.after("train", {"model": model()}, fitted({"model": (other := tree(2.0))}))
    assert keeping.before("train", {"model": model()}, ["model"])["model"] is other


@pytest.mark.parametrize(
    ("name", "place", "label"),
    [("digest", "model", "mlp"), ("train", "exchanged", "mlp"), ("train", "model", "linear")],
)
def test_another_call_model_or_architecture_begins_anew(name: str, place: str, label: str) -> None:
    keeping = Keeping({})
    keeping.after("train", {"model": model()}, fitted({"model": tree()}))
    assert keeping.before(name, {place: model(label)}, [place]) == {}
    assert keeping.before("train", {"model": model()}, ["model"])  # and the other is still there


def test_names_do_not_run_together() -> None:
    keeping = Keeping({})
    keeping.after("a' 'b", {"c": model()}, fitted({"c": tree()}, "c"))
    assert keeping.before("a", {"b' 'c": model()}, ["b' 'c"]) == {}


def test_each_model_of_a_fit_has_its_own() -> None:
    keeping, models = Keeping({}), {"a": model(), "b": model(), "teacher": model()}
    keeping.after("train", models, fitted({"a": tree(1.0), "b": tree(2.0)}, "a", "b"))
    found = keeping.before("train", models, ["b", "a"])
    assert [float(found[name]["momentum/w"][0]) for name in ("a", "b")] == [1.0, 2.0]
    assert list(keeping.before("train", models, ["a"])) == ["a"]


@pytest.mark.parametrize("ruin", [float("nan"), float("inf")])
def test_what_has_diverged_is_forgotten(ruin: float) -> None:
    keeping = Keeping({})
    keeping.after("train", {"model": model()}, fitted({"model": tree()}))
    keeping.after("train", {"model": model()}, fitted({"model": tree(ruin)}))
    assert keeping.held == {}


def test_what_came_from_before_is_not_changed() -> None:
    first = Keeping({})
    first.after("train", {"model": model()}, fitted({"model": tree()}))
    before = first.held
    second = Keeping(before)
    second.after("train", {"model": model()}, fitted({"model": tree(2.0)}))
    second.after("more", {"model": model()}, fitted({"model": tree(2.0)}))
    (kept,) = before.values()
    assert float(kept["momentum/w"][0]) == 1.0
    assert len(second.held) == 2


def test_an_optimiser_without_memory_leaves_none() -> None:
    keeping = Keeping({})
    keeping.after("train", {"model": model()}, fitted({}))
    assert keeping.held == {}


def test_the_optimiser_of_a_model_that_has_diverged_is_forgotten() -> None:
    keeping, ruin = Keeping({}), Model("mlp", {"w": np.full(2, -np.inf, np.float32)})
    keeping.after("train", {"model": model()}, Fitted({"model": ruin}, 0.0, 1, {"model": tree(1e38)}))
    assert keeping.held == {}
