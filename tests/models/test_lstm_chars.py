from collections.abc import Callable

import pytest
import torch

from fedsim.models import Architecture
from fedsim.models.flops import forward
from fedsim.task import Task

SHAKESPEARE = Task((80,), 90, vocabulary=90)


@pytest.mark.parametrize(("layers", "expected"), [(1, 296_234), (2, 822_570), (3, 1_348_906), (4, 1_875_242)])
def test_parameter_counts_are_those_of_the_specification(
    make: Callable[..., Architecture], layers: int, expected: int
) -> None:
    assert make("lstm_chars", SHAKESPEARE, layers=layers).num_params == expected


def test_layers_in_a_row_are_one_lstm_of_several_layers(make: Callable[..., Architecture]) -> None:
    net = make("lstm_chars", SHAKESPEARE, layers=2, hidden=5).plugin.build(SHAKESPEARE)
    whole = torch.nn.LSTM(8, 5, num_layers=2, batch_first=True)
    for layer, name in enumerate(("lstm1", "lstm2")):
        for leaf in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            theirs = whole.get_parameter(f"{leaf}_l{layer}")
            theirs.data.copy_(net.body.get_parameter(f"{name}.lstm.{leaf}_l0").data)
    tokens = torch.arange(6).reshape(2, 3)
    outputs, _ = whole(net.body.get_submodule("embedding")(tokens))
    # The next character is read off the last position.
    assert torch.allclose(net.features(tokens), outputs[:, -1])


def test_every_layer_counts_its_products_at_each_position(make: Callable[..., Architecture]) -> None:
    by_hand = 80 * 4 * 256 * ((8 + 256) + (256 + 256)) + 256 * 90
    assert forward(make("lstm_chars", SHAKESPEARE), 3).flops == 2 * 3 * by_hand
