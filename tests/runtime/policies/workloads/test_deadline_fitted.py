"""The largest work that fits into a deadline."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.training_config import TrainingConfig
from fedsim.rng import Key
from fedsim.runtime.policies.workloads.deadline_fitted import PLUGIN as FITTED

USUAL = TrainingConfig(epochs=4)


@dataclass
class Turn:
    """A dispatch that takes so long without work, and so much longer with each step; it counts questions."""

    usual_steps: int
    step_s: float
    others_s: float = 0.0
    training: TrainingConfig = USUAL
    key: Key = field(default_factory=lambda: Key.root(0))
    asked: int = 0

    async def reply_after_s(self, training: TrainingConfig) -> float:
        self.asked += 1
        steps = self.usual_steps if training.steps is None else training.steps
        return self.others_s + steps * self.step_s


def steps_of(turn: Turn, deadline_s: float, min_steps: int = 1) -> int:
    """Return how many mini-batches a client decides for."""
    workload = FITTED(FITTED.Config.model_construct(deadline=deadline_s, min_steps=min_steps))
    training = asyncio.run(workload.training(turn))
    if training.steps is None:
        assert training is turn.training
        return turn.usual_steps
    assert training.epochs is None
    return training.steps


@pytest.mark.parametrize(
    ("deadline_s", "min_steps", "steps"),
    [
        (100.0, 1, 20),
        (42.0, 1, 20),  # 2 s for transfers, 20 steps of 2 s: just in time
        (41.9, 1, 19),
        (12.0, 1, 5),
        (11.9, 1, 4),
        (4.0, 1, 1),
        (3.0, 1, 1),  # late, with the least
        (12.0, 5, 5),
        (12.0, 6, 6),
        (12.0, 20, 20),
        (12.0, 99, 20),  # never more than the usual
    ],
)
def test_by_hand(deadline_s: float, min_steps: int, steps: int) -> None:
    assert steps_of(Turn(20, 2.0, others_s=2.0), deadline_s, min_steps) == steps


times_s = st.floats(1e-3, 100)


@given(st.integers(0, 300), times_s, times_s, times_s, st.integers(1, 20))
def test_the_work_is_the_largest_that_fits_or_the_least(
    usual: int, step_s: float, others_s: float, deadline_s: float, least: int
) -> None:
    turn = Turn(usual, step_s, others_s)
    steps = steps_of(turn, deadline_s, least)
    assert min(least, usual) <= steps <= usual
    fits = others_s + steps * step_s <= deadline_s + 1e-9
    assert fits or steps == min(least, usual)
    assert steps == usual or others_s + (steps + 1) * step_s > deadline_s
    assert turn.asked <= 2 + (usual - 1).bit_length() if usual else not turn.asked


@given(st.integers(1, 300), times_s, st.floats(1, 10), times_s, times_s)
def test_a_faster_device_does_no_less(
    usual: int, step_s: float, times_as_fast: float, others_s: float, deadline_s: float
) -> None:
    slow, fast = Turn(usual, step_s, others_s), Turn(usual, step_s / times_as_fast, others_s)
    assert steps_of(fast, deadline_s) >= steps_of(slow, deadline_s)


def test_a_client_without_a_batch_has_nothing_to_decide() -> None:
    assert steps_of(Turn(0, 1.0), 0.5) == 0


def test_a_deadline_that_nobody_can_meet_is_refused() -> None:
    workload = FITTED(FITTED.Config.model_validate({"deadline": "2 s", "min_steps": 3}))
    asked = []

    def soonest(steps: int) -> list[float]:
        asked.append(steps)
        return times

    times = [2.5, 2.25, 9.0]
    (fault,) = workload.misfits(USUAL, soonest)
    assert (fault.path, fault.problem) == (
        "participation.workload.params.deadline",
        "no client can do min_steps = 3 and reply in 2 s: the soonest reply would come after 2.25 s, were "
        "its frames empty",
    )
    times = [9.0, 2.0, 4.0]
    assert not list(workload.misfits(USUAL, soonest))
    times = []
    assert not list(workload.misfits(USUAL, soonest))  # that nobody can take part is another fault
    assert asked == [3] * 3
