from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsim.engine.optimisers import (
    Adam,
    Clipped,
    Optimiser,
    Scheduled,
    Sgd,
    cosine,
    keep,
    lasting,
    resume,
)
from fedsim.engine.schedules import Schedules
from fedsim.engine.training_config import TrainingConfig
from fedsim.models.portable_operations import SeenOperations
from fedsim.portable_numerics import REQUEST
from fedsim.rng import Key

SHAPES = [(3, 4), (4,), ()]


def _params() -> list[Tensor]:
    generator = Key.root(1).torch()
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def _moved(optimiser: Optimiser, num_steps: int) -> list[list[Tensor]]:
    generator, params = Key.root(2).torch(), _params()
    state, history = optimiser.start(params), []
    for _ in range(num_steps):
        gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
        optimiser.update(params, gradients, state)
        history.append([param.clone() for param in params])
    return history


def _moved_by_torch(
    params: list[Tensor],
    optimiser: torch.optim.Optimizer,
    num_steps: int,
    before: Callable[[], object] = list,
    after: Callable[[], object] = list,
) -> list[list[Tensor]]:
    generator, history = Key.root(2).torch(), []
    for _ in range(num_steps):
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator)
        before()
        optimiser.step()
        after()
        history.append([param.clone() for param in params])
    return history


CASES: list[tuple[Optimiser, type[torch.optim.Optimizer], dict[str, Any]]] = [
    (Sgd(0.1), torch.optim.SGD, {"lr": 0.1}),
    (Sgd(0.1, momentum=0.9), torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (Sgd(0.1, weight_decay=0.01), torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
    (
        Sgd(0.1, momentum=0.5, weight_decay=0.01),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.01},
    ),
    (Adam(0.01), torch.optim.Adam, {"lr": 0.01}),
    (Adam(0.01, weight_decay=0.1), torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    (
        Adam(0.01, beta1=0.5, beta2=0.9, epsilon=1e-3),
        torch.optim.Adam,
        {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3},
    ),
]


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES, ids=[repr(case[0]) for case in CASES])
def test_every_step_is_that_of_torch(
    ours: Optimiser, theirs: Callable[..., torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    params = _params()
    mine, its = _moved(ours, 5), _moved_by_torch(params, theirs(params, foreach=True, **options), 5)
    for left, right in zip(mine, its, strict=True):
        assert all(map(torch.equal, left, right))


@pytest.mark.parametrize("optimiser", [Sgd(0.1), Sgd(0.1, momentum=0.9), Adam(0.1)], ids=repr)
def test_parameters_that_require_gradients_are_moved_in_place(optimiser: Optimiser) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    state = optimiser.start([weight])
    optimiser.update([weight], [torch.ones(3)], state)
    assert bool((weight < 1).all())
    assert weight.is_leaf
    assert weight.grad is None


def test_long_gradients_are_shortened_together() -> None:
    weights = [torch.zeros(2), torch.zeros(1)]
    gradients = [torch.tensor([6.0, 0.0]), torch.tensor([8.0])]
    optimiser = Clipped(Sgd(lr=1.0), most=5.0)
    optimiser.update(weights, gradients, optimiser.start(weights))
    assert torch.allclose(weights[0], torch.tensor([-3.0, 0.0]))  # the norm is 10, so half remains
    assert torch.allclose(weights[1], torch.tensor([-4.0]))
    assert gradients[0].tolist() == [6.0, 0.0]  # the caller's own


@pytest.mark.parametrize("most", [0.5, 3.0, 100.0])
def test_clipping_is_that_of_torch(most: float) -> None:
    params = _params()
    reference = torch.optim.Adam(params, lr=0.01, foreach=True)
    its = _moved_by_torch(params, reference, 4, before=lambda: torch.nn.utils.clip_grad_norm_(params, most))
    mine = _moved(Clipped(Adam(0.01), most), 4)
    assert all(map(torch.equal, mine[-1], its[-1]))


@pytest.mark.parametrize("inner", [Sgd(0.1), Sgd(0.1, momentum=0.9), Adam(0.01)], ids=repr)
def test_the_cosine_is_that_of_torch(inner: Sgd | Adam) -> None:
    params, num_steps = _params(), 5
    reference: torch.optim.Optimizer = (
        torch.optim.Adam(params, lr=inner.lr)
        if isinstance(inner, Adam)
        else torch.optim.SGD(params, lr=inner.lr, momentum=inner.momentum)
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(reference, num_steps)
    its = _moved_by_torch(params, reference, num_steps, after=schedule.step)
    mine = _moved(cosine(inner, num_steps), num_steps)
    for ours, theirs in zip(mine[-1], its[-1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_the_cosine_by_hand_ends_at_nothing() -> None:
    weight = torch.zeros(1)
    optimiser = cosine(Sgd(lr=1.0), num_steps=2)
    state, seen = optimiser.start([weight]), []
    for _ in range(4):
        optimiser.update([weight], [torch.ones(1)], state)
        seen.append(float(weight))
    assert seen == pytest.approx([-1.0, -1.5, -1.5, -1.5])  # rates 1, 1/2, and then 0


def test_wrapped_settings_are_values_and_work_without_values() -> None:
    made = [Clipped(cosine(Adam(0.1), 7), 5.0) for _ in range(2)]
    assert made[0] == made[1]
    assert hash(made[0]) == hash(made[1])
    weight = torch.empty(3, device="meta")
    state = made[0].start([weight])
    made[0].update([weight], [torch.empty(3, device="meta")], state)
    assert weight.device.type == "meta"


def _by_step(*schedules: dict[str, Any]) -> Schedules:
    listed = [{"by": "step", **one} for one in schedules]
    return TrainingConfig.model_validate({"schedule": listed}).schedule


COSINE = {"name": "cosine"}
HALVED = {"name": "exponential", "params": {"gamma": 0.5}}


def test_a_schedule_by_hand() -> None:
    weight, optimiser = torch.zeros(1), Scheduled(Sgd(lr=1.0), _by_step(HALVED))
    state, seen = optimiser.start([weight]), []
    for _ in range(4):
        optimiser.update([weight], [torch.ones(1)], state)
        seen.append(float(weight))
    assert seen == [-1.0, -1.5, -1.75, -1.875]


@pytest.mark.parametrize("inner", [Sgd(0.1), Sgd(0.1, momentum=0.9), Adam(0.01)], ids=repr)
def test_a_schedule_of_factors_1_changes_no_bit(inner: Sgd | Adam) -> None:
    constant = _by_step({"name": "step", "params": {"step_size": 1, "gamma": 1.0}})
    assert all(map(torch.equal, _moved(Scheduled(inner, constant), 4)[-1], _moved(inner, 4)[-1]))


@pytest.mark.parametrize("inner", [Sgd(0.1, momentum=0.9), Adam(0.01)], ids=repr)
def test_a_cosine_by_step_lasts_as_long_as_the_fit(inner: Sgd | Adam) -> None:
    mine = _moved(lasting(Scheduled(inner, _by_step(COSINE)), 5), 5)[-1]
    for ours, its in zip(mine, _moved(cosine(inner, 5), 5)[-1], strict=True):
        torch.testing.assert_close(ours, its)


def test_only_who_needs_to_know_is_told_how_long_a_fit_is() -> None:
    fitting, halved = (Scheduled(Sgd(0.1), _by_step(one)) for one in (COSINE, HALVED))
    assert lasting(fitting, 7) == Scheduled(Sgd(0.1), fitting.schedules, 7)
    assert lasting(fitting, 0) == fitting
    assert lasting(Clipped(fitting, 1.0), 7) == Clipped(lasting(fitting, 7), 1.0)
    assert lasting(cosine(Sgd(0.1), 5), 7) == cosine(Sgd(0.1), 5)
    # So that fits of other lengths can be done together.
    assert [lasting(one, 7) for one in (halved, Sgd(0.1), Adam(0.1))] == [halved, Sgd(0.1), Adam(0.1)]


NAMES = ("weight", "bias", "scale")
KEPT: list[Optimiser] = [
    Sgd(0.1, momentum=0.9),
    Sgd(0.1, momentum=0.5, weight_decay=0.01),
    Adam(0.01),
    Clipped(Sgd(0.1, momentum=0.9), most=1.0),
]


@pytest.mark.parametrize("optimiser", KEPT, ids=repr)
def test_what_was_kept_goes_on_bit_for_bit(optimiser: Optimiser) -> None:
    generator, params = Key.root(2).torch(), _params()
    state = optimiser.start(params)
    for number in range(5):
        if number == 2:
            kept = {name: tensor.clone() for name, tensor in keep(NAMES, state).items()}
            state = resume(optimiser, dict(zip(NAMES, params, strict=True)), kept)
        optimiser.update(params, [torch.randn(shape, generator=generator) for shape in SHAPES], state)
    assert all(map(torch.equal, params, _moved(optimiser, 5)[-1]))


def test_a_kept_momentum_by_hand() -> None:
    weight, optimiser = torch.tensor([1.0]), Sgd(lr=0.5, momentum=0.5)
    state = optimiser.start([weight])
    assert keep(["w"], state) == {}  # no step yet, nothing to go on from
    optimiser.update([weight], [torch.tensor([2.0])], state)
    kept = keep(["w"], state)
    assert {name: tensor.tolist() for name, tensor in kept.items()} == {"momentum/w": [2.0]}
    weight = torch.tensor([10.0])  # another round's
    optimiser.update([weight], [torch.tensor([0.0])], resume(optimiser, {"w": weight}, kept))
    assert weight.tolist() == [10.0 - 0.5 * 0.5 * 2.0]


def test_a_kept_adam_knows_its_steps() -> None:
    optimiser, params = Adam(0.01), _params()
    state = optimiser.start(params)
    for _ in range(3):
        optimiser.update(params, _params(), state)
    kept = keep(NAMES, state)
    assert len(kept) == 3 * len(SHAPES)
    assert float(kept["steps/bias"]) == 3
    again = resume(optimiser, dict(zip(NAMES, params, strict=True)), kept)
    optimiser.update(params, _params(), again)
    assert float(keep(NAMES, again)["steps/bias"]) == 4


def test_sgd_without_momentum_has_nothing_to_keep() -> None:
    for optimiser in (Sgd(0.1), Sgd(0.1, weight_decay=0.1)):
        params = _params()
        state = optimiser.start(params)
        optimiser.update(params, _params(), state)
        assert keep(NAMES, state) == {}
        optimiser.update(params, _params(), resume(optimiser, dict(zip(NAMES, params, strict=True)), {}))


def test_a_schedule_is_one_fit_s() -> None:
    optimiser = cosine(Sgd(lr=1.0, momentum=0.5), 2)
    weight = torch.zeros(1)
    state = optimiser.start([weight])
    for _ in range(2):
        optimiser.update([weight], [torch.ones(1)], state)
    again = resume(optimiser, {"w": weight}, keep(["w"], state))
    before = float(weight)
    optimiser.update([weight], [torch.ones(1)], again)
    # The momentum goes on: 1, 1.5, 1.75. The rate, 0 by then, is that of a first step again.
    assert before - float(weight) == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("optimiser", "kept", "match"),
    [
        (Sgd(0.1, momentum=0.9), {}, "'momentum/w' is no such tensor, and it has .3. of torch.float32"),
        (Sgd(0.1, momentum=0.9), {"momentum/v": torch.zeros(3)}, "'momentum/v' is .3. of torch.float32"),
        (Sgd(0.1, momentum=0.9), {"momentum/w": torch.zeros(2)}, "'momentum/w' is .2. of"),
        (Sgd(0.1, momentum=0.9), {"momentum/w": torch.zeros(3).double()}, "of torch.float64"),
        (Sgd(0.1), {"momentum/w": torch.zeros(3)}, "give this one another name"),
        (Adam(0.1), {"momentum/w": torch.zeros(3)}, "'first/w' is no such tensor"),
        (Adam(0.1), {"first/w": torch.zeros(3), "second/w": torch.zeros(3)}, "'steps/w' is no such tensor"),
        (cosine(Adam(0.1), 3), {"momentum/w": torch.zeros(3)}, "'first/w'"),
        (Clipped(Adam(0.1), 3.0), {"momentum/w": torch.zeros(3)}, "'first/w'"),
    ],
)
def test_what_another_optimiser_kept_is_refused(
    optimiser: Optimiser, kept: dict[str, Tensor], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        resume(optimiser, {"w": torch.zeros(3)}, kept)


def test_adam_of_a_portable_process_calls_no_root_of_mkls(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = _moved(Adam(0.01, weight_decay=0.1), 5)
    monkeypatch.setenv(REQUEST, "1")
    with SeenOperations() as seen:
        portable = _moved(Adam(0.01, weight_decay=0.1), 5)
    assert "_fused_adam_" in seen.names
    assert not {"_foreach_sqrt", "sqrt"} & seen.names
    for left, right in zip(chain(*usual), chain(*portable), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("size", [1, 7, 16, 31, 100])
def test_adam_of_a_portable_process_gives_stacked_parameters_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setenv(REQUEST, "1")
    generator = Key.root(3).torch()
    start, gradient = (torch.randn((3, size), generator=generator) for _ in range(2))
    stacked = start.clone()
    Adam(0.01).update([stacked], [gradient], Adam(0.01).start([stacked]))
    for row, its_gradient, end in zip(start, gradient, stacked, strict=True):
        alone = row.clone()
        Adam(0.01).update([alone], [its_gradient.clone()], Adam(0.01).start([alone]))
        assert torch.equal(alone, end)
