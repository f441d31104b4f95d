"""Several models in one message."""

import numpy as np
import pytest

from fedsim.algorithms.common.model_set_message import ModelSet
from fedsim.params import Model
from fedsim.wire.declare import num_parameters


def model(value: float, label: str = "net") -> Model:
    return Model(label, {"w": np.full((2, 3), value, np.float32)}, {"seen": np.array(value, np.int64)})


def test_models_come_back_by_their_numbers() -> None:
    sent = ModelSet.of({4: model(1), 2: model(3)})
    assert sent.architecture == "net"
    assert {number: one.digest() for number, one in sent.models.items()} == {
        4: model(1).digest(),
        2: model(3).digest(),
    }
    assert num_parameters(sent) == 12


def test_a_set_may_be_empty() -> None:
    assert ModelSet.of({}).models == {}


def test_a_set_has_one_architecture_and_one_name_for_each_model() -> None:
    with pytest.raises(ValueError, match="one architecture, not net, other"):
        ModelSet.of({0: model(1), 1: model(1, "other")})
    with pytest.raises(ValueError, match=r"parameters of \['0'\] and buffers of \[\]"):
        ModelSet("net", {"0": model(1).params}, {})
