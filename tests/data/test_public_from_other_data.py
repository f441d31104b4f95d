"""Public sets of another data set, and images transformed once."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.data.base import Dataset
from fedsim.data.public_from_other_data import augmented, drawn_from, form_fault
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task

KEY = Key.root(0)
GREY, COLOUR = Task((1, 4, 4), 10), Task((3, 4, 4), 10)


def images(task: Task, num: int = 20) -> Dataset:
    """Images of one value each, which is their number."""
    values = (np.arange(num) / num).astype(np.float32)
    x = np.repeat(values, task.num_inputs).reshape(-1, *task.input_shape)
    return Dataset(task, x, np.arange(num) % 10)


def test_samples_of_the_same_form_are_as_they_were() -> None:
    source = images(GREY)
    drawn = drawn_from(source, Task((1, 4, 4), 3), 20, KEY)
    assert drawn.dtype == np.float32
    numbers = (drawn[:, 0, 0, 0] * 20).round().astype(int)
    assert sorted(numbers.tolist()) == list(range(20))
    assert numbers.tolist() != sorted(numbers.tolist())
    assert (drawn == drawn[:, :1, :1, :1]).all()
    few = drawn_from(source, GREY, 5, KEY)
    assert np.array_equal(few, drawn[:5])
    assert not np.array_equal(drawn, drawn_from(source, GREY, 20, Key.root(1)))


def test_grey_becomes_colour_and_colour_grey() -> None:
    x = np.zeros((1, 3, 1, 2), np.float32)
    x[0, :, 0, 0] = 0.3, 0.6, 0.9
    source = Dataset(Task((3, 1, 2), 2), x, np.zeros(1, np.int64))
    assert drawn_from(source, Task((1, 1, 2), 2), 1, KEY).ravel() == pytest.approx([0.6, 0])
    grey = Dataset(Task((1, 1, 2), 2), x[:, :1].copy(), np.zeros(1, np.int64))
    assert drawn_from(grey, Task((3, 1, 2), 2), 1, KEY)[0, :, 0, 0] == pytest.approx([0.3] * 3)
    # Two channels are the mean of one as well as three are.
    assert drawn_from(grey, Task((2, 1, 2), 2), 1, KEY).shape == (1, 2, 1, 2)


def test_images_are_resized_with_antialiasing() -> None:
    # Half the size: a triangle of weights 1, 3, 3, 1 over neighbours, cut off and normalised at the borders.
    x = np.array([0, 7, 0, 0], np.float32).reshape(1, 1, 1, 4)
    source = Dataset(Task((1, 1, 4), 2), x, np.zeros(1, np.int64))
    small = drawn_from(source, Task((1, 1, 2), 2), 1, KEY)
    assert small.ravel() == pytest.approx([3, 1])
    assert drawn_from(images(COLOUR), Task((1, 28, 28), 2), 6, KEY).shape == (6, 1, 28, 28)


@given(st.sampled_from([1, 3]), st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9))
def test_a_flat_image_stays_flat(own: int, wanted: int, height: int, width: int) -> None:
    drawn = drawn_from(images(Task((own, 4, 4), 10)), Task((wanted, height, width), 2), 8, KEY)
    assert drawn.shape == (8, wanted, height, width)
    assert drawn == pytest.approx(np.broadcast_to(drawn[:, :1, :1, :1], drawn.shape), abs=1e-6)
    assert 0 <= drawn.min() <= drawn.max() <= 1


def test_texts_of_another_file_have_other_tokens() -> None:
    task = Task((5,), 7, vocabulary=7)
    tokens = np.arange(35).reshape(7, 5) % 7
    with pytest.raises(DataError, match=r"each data set numbers its own words .*: leave out the source"):
        drawn_from(Dataset(task, tokens, np.arange(7)), task, 7, KEY)


@pytest.mark.parametrize(
    ("source", "task", "problem"),
    [
        (Task((5,), 2, vocabulary=7), Task((5,), 2), "has texts, but the task has images or numbers"),
        (Task((5,), 2), Task((5,), 2, vocabulary=7), "has images or numbers, but the task has texts"),
        (Task((5,), 2, vocabulary=7), Task((5,), 2, vocabulary=7), "texts cannot come from another data set"),
        (Task((5,), 2, vocabulary=7), Task((6,), 2, vocabulary=8), "texts cannot come from another data set"),
        (Task((64,), 2), Task((1, 8, 8), 2), "the shape 64, but the task's have 1 x 8 x 8: only images"),
        (Task((1, 8, 8), 2), Task((64,), 2), "the shape 1 x 8 x 8, but the task's have 64: only images"),
        (Task((2, 8, 8), 2), Task((3, 8, 8), 2), "only be repeated from one or averaged to one"),
        (Task((64,), 2), Task((64,), 3), ""),
        (Task((1, 8, 8), 2), Task((3, 32, 32), 2), ""),
    ],
)
def test_forms_that_cannot_be_had(source: Task, task: Task, problem: str) -> None:
    fault = form_fault(source, task)
    assert problem in fault
    assert bool(problem) == bool(fault)


def test_a_source_that_is_too_small_or_has_nothing() -> None:
    with pytest.raises(DataError, match="21 public samples, but their source has 20: write 20") as caught:
        drawn_from(images(GREY), GREY, 21, KEY)
    assert caught.value.setting == "public_size"
    with pytest.raises(DataError, match="sample counts only"):
        drawn_from(Dataset(GREY, sizes=np.array([3])), GREY, 1, KEY)


def noise(*shape: int) -> Any:
    return Key.root(3).numpy().random(shape, np.float32)


@settings(max_examples=5)
@given(st.sampled_from([1, 2, 3]), st.integers(6, 12), st.integers(6, 12))
def test_images_are_transformed_by_the_key_alone(channels: int, height: int, width: int) -> None:
    x = noise(6, channels, height, width)
    before = x.copy()
    state = torch.get_rng_state()
    first = augmented(x, KEY)
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(x, before)
    assert first.shape == x.shape
    assert first.dtype == np.float32
    assert 0 <= first.min() <= first.max() <= 1
    assert np.array_equal(first, augmented(x, KEY))
    assert all((one != other).any() for one, other in zip(first, x, strict=True))
    assert not np.array_equal(first, augmented(x, Key.root(1)))


def test_black_stays_black_and_the_centre_of_grey_its_shade() -> None:
    assert not augmented(np.zeros((4, 1, 12, 12), np.float32), KEY).any()
    # At the centre of a plain image, brightness and contrast tell, and a flip or a turn does not.
    centres = augmented(np.full((200, 1, 20, 20), 0.5, np.float32), KEY)[:, 0, 10, 10]
    assert centres.mean() == pytest.approx(0.5, abs=0.03)
    assert centres.min() < 0.4
    assert centres.max() > 0.6


def test_half_of_the_images_are_flipped() -> None:
    # Left half black, right half white: a crop by 4 of 32 and a rotation by 15 degrees leave the sides.
    x = np.zeros((200, 3, 32, 32), np.float32)
    x[..., 16:] = 1
    out = augmented(x, KEY).mean(axis=1)
    flipped = out[:, 14:18, 6:9].mean(axis=(1, 2)) > out[:, 14:18, 23:26].mean(axis=(1, 2))
    assert 70 <= int(flipped.sum()) <= 130


def test_only_images_in_range_are_transformed() -> None:
    with pytest.raises(
        DataError, match=r'are float32 of shape 64 with values .* write augment = "none"'
    ) as caught:
        augmented(noise(3, 64), KEY)
    assert caught.value.setting == "public_augment"
    with pytest.raises(DataError, match=r"only images .* can be transformed, but these samples are int64"):
        augmented(np.zeros((3, 1, 8, 8), np.int64), KEY)
    with pytest.raises(DataError, match="1 x 1 x 2 with values from 0 to 255"):
        augmented(np.array([0, 255], np.float32).reshape(1, 1, 1, 2), KEY)
