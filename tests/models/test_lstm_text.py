from collections.abc import Callable

import torch

from fedsim.models import Architecture
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


def test_a_text_is_its_last_position_or_the_mean_of_all(make: Callable[..., Architecture]) -> None:
    task = Task((4,), 2, vocabulary=9)
    tokens = torch.tensor([[1, 2, 3, 4], [8, 7, 6, 5]])
    for state in ("last", "mean"):
        net = make("lstm_text", task, hidden=3, state=state).plugin.build(task)
        positions = torch.nn.Sequential(*list(net.body)[:-1])(tokens)
        expected = positions[:, -1] if state == "last" else positions.sum(1) / 4
        assert torch.allclose(net.features(tokens), expected)
