import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedsim.config import Config
from fedsim.engine.memory_need import needed_bytes
from fedsim.engine.training_config import TrainingConfig
from fedsim.models import Architecture, ModelPlugin, Net, process_cache
from fedsim.models.base import named
from fedsim.models.cnn import Cnn
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.task import Task

SGD = TrainingConfig()
MOMENTUM = TrainingConfig(momentum=0.9)
ADAM = TrainingConfig(optimiser="adam")

# 6 inputs, 4 hidden units, 3 classes: 6 * 4 + 4 + 4 * 3 + 3 = 43 parameters. A sample leaves behind the
# hidden layer before and after its ReLU and the logits, 11 scalars; flattening takes no memory of its own.
SMALL = Architecture("small", MLP(MLP.Config(hidden=(4,))), Task((6,), 3))
PARAMS = 43
SAMPLE = 4 * 6 + 8 + 4 * (4 + 4 + 3)


@pytest.mark.parametrize(("training", "copies"), [(SGD, 2), (MOMENTUM, 3), (ADAM, 4)])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_a_perceptron_by_hand(training: TrainingConfig, copies: int, batch_size: int) -> None:
    assert needed_bytes(SMALL, batch_size, training) == 4 * copies * PARAMS + batch_size * SAMPLE


def test_targets_are_half_as_large_as_classes() -> None:
    regression = Architecture("regression", SMALL.plugin, Task((6,), 3, "regression"))
    assert needed_bytes(regression, 5, SGD) == needed_bytes(SMALL, 5, SGD) - 5 * 4


def test_tokens_are_twice_as_large_as_pixels() -> None:
    task = Task((6,), 3, vocabulary=10)
    texts = Architecture("texts", _Bag(Config()), task)
    # Ten words of two numbers each; then their mean and the three logits.
    assert texts.num_params == 10 * 2 + 2 * 3 + 3
    assert needed_bytes(texts, 5, SGD) == 8 * texts.num_params + 5 * (8 * 6 + 8 + 4 * (2 + 3))


class _Bag(ModelPlugin[Config]):
    """The mean of the words' vectors."""

    def build(self, task: Task) -> Net:
        return Net(named(words=nn.EmbeddingBag(task.vocabulary, 2)), nn.Linear(2, task.num_outputs))


class _Odd(ModelPlugin[Config]):
    """A buffer, a result in place, and a layer that returns more than one tensor."""

    def build(self, task: Task) -> Net:
        class Last(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lstm = nn.LSTM(1, 2, batch_first=True)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                output: torch.Tensor = self.lstm(x[:, :, None])[0]
                return output[:, -1]

        body = named(norm=nn.BatchNorm1d(5), relu=nn.ReLU(inplace=True), last=Last())
        return Net(body, nn.Linear(2, 3))


def test_buffers_results_in_place_and_several_outputs() -> None:
    odd = Architecture("odd", _Odd(Config()), Task((5,), 3))
    assert odd.num_params == 2 * 5 + 4 * 2 * (1 + 2 + 2) + 2 * 3 + 3
    buffers = 4 * 5 + 4 * 5 + 8
    # BatchNorm 5; ReLU nothing; LSTM 5 steps of 2, and its last output and cell state; logits 3.
    sample = 4 * 5 + 8 + 4 * (5 + 5 * 2 + 2 + 2 + 3)
    assert needed_bytes(odd, 7, SGD) == 8 * odd.num_params + buffers + 7 * sample


IMAGES = Architecture("cnn", Cnn(Cnn.Config()), Task((1, 28, 28), 10))


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([SMALL, IMAGES]))
def test_a_larger_batch_needs_more(one: int, other: int, architecture: Architecture) -> None:
    needs = [needed_bytes(architecture, size, SGD) for size in (one, other)]
    assert (needs[0] < needs[1]) == (one < other)
    # In proportion, beyond what does not depend on the batch.
    single, double = (needed_bytes(architecture, size, SGD) for size in (1, 2))
    assert needs[0] == single + (one - 1) * (double - single)


def test_it_is_looked_through_once_for_each_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Architecture("fresh", SMALL.plugin, SMALL.task)
    process_cache.forget()
    looked = []
    skeleton = Architecture.skeleton

    def count(self: Architecture) -> Net:
        looked.append(self.label)
        return skeleton(self)

    monkeypatch.setattr(Architecture, "skeleton", count)
    sizes = [needed_bytes(fresh, 8, training) for training in (SGD, MOMENTUM, ADAM, SGD)]
    assert sizes[0] == sizes[3] < sizes[1] < sizes[2]
    assert len(looked) == 2, "once for the parameters, once for the pass"
    again = Architecture("again", SMALL.plugin, SMALL.task)
    assert needed_bytes(again, 8, SGD) == sizes[0]
    assert len(looked) == 2, "another run's is the same model"
