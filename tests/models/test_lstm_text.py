from collections.abc import Callable

import torch

from fedsim.data import texts
from fedsim.models import Architecture, recurrent
from fedsim.task import Task

TWEETS = Task((25,), 2, vocabulary=30_522)
FED_ET = {"width": 256, "hidden": [256, 128]}


def test_the_lstm_of_seed_003_has_two_and_a_half_million_parameters(
    make: Callable[..., Architecture],
) -> None:
    assert make("lstm_text", TWEETS).num_params == 2_368_342
    shared = make("lstm_text", TWEETS, representation=FED_ET)
    assert shared.num_params == 2_466_774
    assert sum(p.numel() for p in shared.skeleton().head.parameters()) == 98_946


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
    assert recurrent.PADDING == texts.PADDING
    for state in ("last", "mean"):
        net = make("lstm_text", Task((2,), 2, vocabulary=9), hidden=3, state=state).plugin.build(
            Task((2,), 2, vocabulary=9)
        )
        short, long = torch.tensor([[5, 3]]), torch.tensor([[5, 3, 0, 0, 0, 0]])
        assert torch.allclose(net(short), net(long))
