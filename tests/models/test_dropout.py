import threading
from collections.abc import Callable

import pytest
import torch

from fedsim.errors import InvariantError
from fedsim.models import Architecture
from fedsim.models.dropout import Dropout, drawing_from
from fedsim.task import Task


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masked(seed: int = 0) -> torch.Tensor:
    with drawing_from(generator(seed)):
        result: torch.Tensor = Dropout(0.5)(torch.ones(64))
    return result


@pytest.mark.parametrize("p", [0.25, 0.5])
@pytest.mark.parametrize("shape", [(7,), (40, 50), (2, 4, 8, 8)])
def test_the_mask_is_that_of_torchs_own_dropout(p: float, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=generator(1))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        expected = torch.nn.functional.dropout(x, p)
    with drawing_from(generator(5)):
        assert torch.equal(Dropout(p)(x), expected)


def test_values_are_zero_or_scaled_and_so_is_the_gradient() -> None:
    x = torch.ones(1000, requires_grad=True)
    with drawing_from(generator()):
        y = Dropout(0.2)(x)
    assert y.unique().tolist() == [0, pytest.approx(1.25)]
    assert 0.75 < (y > 0).float().mean().item() < 0.85
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    before = torch.get_rng_state()
    first = masked()
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert torch.equal(first, masked())
    assert not torch.equal(first, masked(1))


def test_layers_draw_in_turn_from_the_innermost_generator() -> None:
    layer, x = Dropout(0.5), torch.ones(64)
    with drawing_from(generator()):
        first = layer(x)
        with drawing_from(generator()):
            inner = layer(x)
        second = layer(x)
    assert torch.equal(first, inner)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("layer", [Dropout(0.5).eval(), Dropout(0.0)])
def test_nothing_is_drawn_in_evaluation_or_with_probability_zero(layer: Dropout) -> None:
    x, own = torch.ones(3), generator()
    before = own.get_state()
    assert layer(x) is x
    with drawing_from(own):
        assert layer(x) is x
    assert torch.equal(before, own.get_state())


def test_nothing_is_drawn_on_the_meta_device() -> None:
    own = generator()
    before = own.get_state()
    x = torch.empty(2, 3, device="meta")
    with drawing_from(own):
        y = Dropout()(x)
    assert (y.shape, y.device.type) == ((2, 3), "meta")
    assert Dropout()(x).shape == (2, 3)
    assert torch.equal(before, own.get_state())


def test_training_without_a_generator_teaches_also_after_one_was_there() -> None:
    masked()
    with pytest.raises(InvariantError, match=r"no generator to draw from: train in a Fit.*net\.eval\(\)"):
        Dropout()(torch.ones(2))


def test_a_generator_is_left_behind_when_the_code_inside_fails() -> None:
    with pytest.raises(ZeroDivisionError), drawing_from(generator()):
        raise ZeroDivisionError
    with pytest.raises(InvariantError, match="no generator"):
        Dropout()(torch.ones(2))


def test_threads_draw_from_generators_of_their_own() -> None:
    seen: dict[int, torch.Tensor] = {}
    meet = threading.Barrier(2)

    def work(seed: int) -> None:
        with drawing_from(generator(seed)):
            meet.wait()
            seen[seed] = Dropout(0.5)(torch.ones(64))
            meet.wait()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(seen[0], masked(0))
    assert torch.equal(seen[1], masked(1))


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_another_probability_teaches(p: float) -> None:
    with pytest.raises(ValueError, match="give a probability from 0 to below 1"):
        Dropout(p)


def test_dropout_follows_the_pooling_and_the_full_layer(make: Callable[..., Architecture]) -> None:
    net = make("cnn_femnist", Task((1, 28, 28), 62), conv_dropout=0.1).skeleton()
    found = {name: module.p for name, module in net.named_modules() if isinstance(module, Dropout)}
    assert found == {"body.pool.dropout": 0.1, "body.fc1.dropout": 0.5}
