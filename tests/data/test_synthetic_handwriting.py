"""Digits in the styles of many writers."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.digit_images import digit_images
from fedsim.data.synthetic_handwriting import (
    SOURCE,
    Writers,
    WritersConfig,
    _inked,
    _page,
    _placed,
    sizes,
)
from fedsim.errors import DataError
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

KEY = Key.root(3)
PLAIN = np.array([1, 0, 0, 1, 0, 0, 0.5])
"""A style that changes nothing: source and page coincide."""


def load(num_clients: int = 4, **settings: Any) -> Dataset:
    config = WritersConfig.model_validate({"samples_per_writer": 30.0, "deviation": 8.0} | settings)
    return Writers(config).load(LoadContext(None, num_clients, KEY))


def draw(style: Array, size: int = SOURCE) -> Array:
    """Return the first source image in a style."""
    strokes = np.ascontiguousarray(digit_images()[0][:1].T)
    return _inked(_placed(strokes, _page(size), style), style[6]).reshape(size, size)


def test_its_form() -> None:
    dataset = load(size=12)
    assert dataset.task == Task((1, 12, 12), 10)
    x, users = held(dataset.x), there(dataset.users)
    assert x.shape == (len(users), 1, 12, 12)
    assert (x.min(), x.max()) == (0, 1)
    assert np.array_equal(np.rint(x * 255) / np.float32(255), x)
    assert np.unique(users).tolist() == [0, 1, 2, 3]
    assert np.unique(there(load(num_writers=7).users)).tolist() == list(range(7))


def test_equal_keys_give_equal_images() -> None:
    assert np.array_equal(held(load().x), held(load().x))


def test_numbers_of_images_are_those_of_femnist() -> None:
    # 004 table 2: mean 197.53, standard deviation 76.69, min 16, max 418; 3,400 writers.
    counts = np.concatenate([sizes(WritersConfig(), 3400, KEY.child(n)) for n in range(5)])
    assert counts.mean() == pytest.approx(197.53, rel=0.01)
    assert counts.std(ddof=1) == pytest.approx(76.69, rel=0.02)
    assert counts.min() >= 16
    assert counts.max() == 418


def test_the_limits_of_the_numbers() -> None:
    assert sizes(WritersConfig(samples_per_writer=50.0, deviation=0.0), 3, KEY).tolist() == [50] * 3
    assert sizes(WritersConfig(least=300, most=310), 50, KEY).min() == 300
    assert sizes(WritersConfig(most=16), 2, KEY).tolist() == [16] * 2


def test_a_style_that_changes_nothing() -> None:
    strokes = digit_images()[0][0].reshape(SOURCE, SOURCE)
    expected = np.clip((strokes - 0.5) * 2.5 + 0.5, 0, 1)
    assert draw(PLAIN) == pytest.approx(expected, abs=0.5 / 255 + 1e-6)


def test_a_style_moves_and_turns() -> None:
    plain = draw(PLAIN)
    right = PLAIN + np.array([0, 0, 0, 0, 2 / SOURCE, 0, 0])
    down = PLAIN + np.array([0, 0, 0, 0, 0, 2 / SOURCE, 0])
    quarter = np.array([0, -1, 1, 0, 0, 0, 0.5])
    assert np.array_equal(draw(right)[:, 1:], plain[:, :-1])
    assert np.array_equal(draw(down)[1:], plain[:-1])
    # To the right becomes down, so it turns clockwise.
    assert draw(quarter) == pytest.approx(np.rot90(plain, -1), abs=1 / 255)


def test_a_thick_pen_leaves_more_ink() -> None:
    inks = [draw(np.append(PLAIN[:6], middle)).sum() for middle in (0.7, 0.5, 0.3)]
    assert inks == sorted(inks)
    assert inks[0] < inks[2]


def test_a_place_between_pixels() -> None:
    # Source pixels 0, 1, ... in reading order; their middles are at -7/8, -5/8, ..., 7/8.
    strokes = np.arange(64, dtype=np.float32)[:, None]
    page = np.array([[-7 / 8, -7 / 8], [-6 / 8, -7 / 8], [-6 / 8, -5.5 / 8], [1, 1], [2, 0]])
    expected = [0, 0.5, 0.5 + 8 * 0.75, 63 / 4, 0]
    assert _placed(strokes, page, PLAIN)[:, 0] == pytest.approx(expected)


def test_style_and_class_can_both_be_seen() -> None:
    def apart(dataset: Dataset, by: Array | None) -> float:
        """Return the variance of the means of groups of images, per pixel."""
        x, by = held(dataset.x), there(by)
        return float(np.stack([x[by == k].mean(axis=0) for k in np.unique(by)]).var(axis=0).mean())

    styled, uniform = load(8, samples_per_writer=150.0), load(8, samples_per_writer=150.0, style=0.0)
    assert apart(styled, styled.users) > 5 * apart(uniform, uniform.users)
    assert apart(styled, styled.y) > 0.3 * apart(uniform, uniform.y)


def test_every_image_wobbles() -> None:
    still = load(2, wobble=0.0, samples_per_writer=400.0)
    wobbling = load(2, samples_per_writer=400.0)
    for dataset, repeats in ((still, True), (wobbling, False)):
        x = held(dataset.x)
        different = len(np.unique(x.reshape(len(x), -1), axis=0))
        assert (different < len(x)) == repeats


def test_preferences() -> None:
    def shares(dataset: Dataset) -> Array:
        pairs = 10 * there(dataset.users) + held(dataset.y).astype(np.int64)
        counts = np.bincount(pairs, minlength=200).reshape(20, 10)
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    same, picky = load(20, size=8, samples_per_writer=100.0), load(20, size=8, preference=0.1)
    assert shares(same).max() < 0.3
    assert np.median(shares(picky).max(axis=1)) > 0.5


def test_more_images_than_there_can_be_memory_for() -> None:
    # 10**6 writers of 10**6 images of 64 x 64 pixels are 16 PB: more than any address.
    settings: dict[str, Any] = {
        "num_writers": 10**6,
        "samples_per_writer": 1e6,
        "most": 10**6,
        "deviation": 0.0,
        "size": 64,
    }
    with pytest.raises(DataError, match=r"take 16400 TB, .* lower num_writers, samples_per_writer or size"):
        load(**settings)


def test_the_fewest_images_are_not_more_than_the_most() -> None:
    with pytest.raises(ValidationError, match="least = 20 is above most = 19"):
        WritersConfig(least=20, most=19)
