"""Whether a model has the right architecture (specification 3.5, E12)."""

from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.model_check import same, unlike
from fedsim.params import Model


def _model(label: str = "a", w: Any = (1.0, 2.0), steps: int = 3, **more: Any) -> Model:
    params = {"w": np.array(w, np.float32), **more}
    return Model(label, params, {"steps": np.array(steps, np.int64)})


def test_a_model_is_the_same_as_a_copy() -> None:
    assert same(_model(), _model())


@pytest.mark.parametrize(
    "other",
    [
        _model("b"),
        _model(w=(1.0, 2.5)),
        _model(w=(1.0,)),
        _model(steps=4),
        _model(v=np.zeros(1, np.float32)),
        Model("a", _model().params),
    ],
)
def test_a_model_is_another_by_label_names_or_any_value(other: Model) -> None:
    assert not same(_model(), other)
    assert not same(other, _model())


def test_what_fits_is_not_unlike_whatever_its_values() -> None:
    assert unlike(_model(w=(8.0, 9.0), steps=7), _model()) is None
    assert unlike(_model("b"), _model()) == "architecture 'b', not 'a'"
    assert unlike(_model(w=(1.0,)), _model()) == "w: float32(1,), not float32(2,)"
    doubles = Model("a", {name: array.astype(np.float64) for name, array in _model().params.items()})
    assert (unlike(doubles, _model()) or "").startswith("w: float64")
    assert unlike(Model("a", {"v": np.zeros(2, np.float32)}), _model()) is not None
    assert unlike(Model("a", _model().params), _model()) == "other names than architecture 'a' has"
