import asyncio
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config import Config
from fedsim.engine.training_config import TrainingConfig
from fedsim.plugins import available
from fedsim.rng import Key
from fedsim.runtime.policies.workloads.base import Workload
from fedsim.runtime.policies.workloads.epochs import Fixed, VariableEpochs


def test_nothing_is_decided() -> None:
    work: Any = SimpleNamespace(training=TrainingConfig(epochs=3))
    assert asyncio.run(Fixed(Config()).training(work)) is work.training
    assert not list(Fixed(Config()).misfits(work.training, lambda steps: [1.0]))


def test_it_alone_of_fedsims_own_varies_nothing() -> None:
    folder = "fedsim.runtime.policies.workloads"
    plugins: Any = {found.name: found.plugin for found in available(folder)}
    constant = [
        name for name, plugin in plugins.items() if not plugin(plugin.Config.model_construct()).varies
    ]
    assert constant == ["fixed"]
    assert not Workload(Config()).varies


@dataclass
class Turn:
    """A dispatch of which the training and the key alone are asked for."""

    key: Key
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(epochs=5, lr=0.3))

    @property
    def usual_steps(self) -> int:
        raise AssertionError("nothing is counted")

    async def reply_after_s(self, training: TrainingConfig) -> float:
        raise AssertionError("nothing is predicted")


def drawn(share: float, key: Key, epochs: int = 5) -> TrainingConfig:
    workload = VariableEpochs(VariableEpochs.Config(share=share))
    return asyncio.run(workload.training(Turn(key, TrainingConfig(epochs=epochs, lr=0.3))))


@pytest.mark.slow
def test_stragglers_are_uniform_and_as_many_as_the_share_says() -> None:
    epochs = Counter(drawn(0.5, Key.root(0).child(number)).epochs for number in range(2000))
    # Half of them do 1 to 5 epochs, 200 each; the others do 5.
    assert {number: epochs[number] for number in range(1, 5)} == pytest.approx(
        dict.fromkeys(range(1, 5), 200), abs=45
    )
    assert epochs[5] == pytest.approx(1200, abs=70)
    assert set(epochs) == {1, 2, 3, 4, 5}


@given(st.integers(0, 2**63), st.integers(2, 9))
def test_a_draw_follows_from_the_turn_and_changes_the_epochs_alone(seed: int, most: int) -> None:
    key = Key.root(seed)
    one = drawn(1.0, key, most)
    assert one == drawn(1.0, key, most)
    assert one.epochs is not None
    assert 1 <= one.epochs <= most
    assert one.model_copy(update={"epochs": most}) == TrainingConfig(epochs=most, lr=0.3)


@pytest.mark.parametrize(
    ("training", "given"), [({}, "epochs = 1"), ({"epochs": 0}, "epochs = 0"), ({"steps": 7}, "steps = 7")]
)
def test_a_training_without_epochs_to_draw_from_is_refused(training: dict[str, Any], given: str) -> None:
    (fault,) = VariableEpochs(VariableEpochs.Config()).misfits(TrainingConfig(**training), lambda steps: ())
    said = f"it draws from 1 to training.epochs, and with {given} there is nothing to draw from"
    assert (fault.path, fault.problem) == ("participation.workload", said)
    assert not list(
        VariableEpochs(VariableEpochs.Config()).misfits(TrainingConfig(epochs=2), lambda steps: ())
    )
