from collections.abc import Callable

import torch

from fedsim.data import texts
from fedsim.models import Architecture, lstm
from fedsim.models.flops import forward
from fedsim.task import Task

SHAKESPEARE = Task((80,), 90, vocabulary=90)


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


def test_a_text_is_its_last_word_or_the_mean_of_all_and_padding_is_none(
    make: Callable[..., Architecture],
) -> None:
    task = Task((4,), 2, vocabulary=9)
    tokens = torch.tensor([[1, 2, 3, 4], [8, 7, 0, 0], [8, 0, 6, 0], [0, 0, 0, 0]])
    for state in ("last", "mean"):
        net = make("lstm_text", task, hidden=3, state=state).plugin.build(task)
        marked = torch.nn.Sequential(*list(net.body)[:-1])(tokens)
        at, marks = marked[..., :-1], marked[..., -1]
        assert marks.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
        last = torch.stack([at[0, 3], at[1, 1], at[2, 2], torch.zeros(3)])
        mean = torch.stack([at[0].mean(0), at[1, :2].mean(0), (at[2, 0] + at[2, 2]) / 2, torch.zeros(3)])
        assert torch.allclose(net.features(tokens), last if state == "last" else mean)


def test_a_short_text_is_the_same_however_far_it_is_filled_up(make: Callable[..., Architecture]) -> None:
    assert lstm.PADDING == texts.PADDING
    for state in ("last", "mean"):
        net = make("lstm_text", Task((2,), 2, vocabulary=9), hidden=3, state=state).plugin.build(
            Task((2,), 2, vocabulary=9)
        )
        short, long = torch.tensor([[5, 3]]), torch.tensor([[5, 3, 0, 0, 0, 0]])
        assert torch.allclose(net(short), net(long))
