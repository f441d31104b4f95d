"""The colours can be told apart, by readers with any kind of colour vision."""

from itertools import combinations

import numpy as np
import pytest

from fedsim.figures.palette import DARK, DARK_GROUND, DASHES, HEAT_DARK, HEAT_LIGHT, LIGHT, LIGHT_GROUND
from fedsim.params import Array

TO_LMS = np.array([[0.4122, 0.5363, 0.0515], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
TO_OKLAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])

# What linear colours are to those who lack one kind of cones (Machado, Oliveira and Fernandes 2009).
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deuteranopia": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
    "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}


def linear(colour: str) -> Array:
    """Return the red, green and blue light of a colour, each between 0 and 1."""
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours by the rules of WCAG, between 1 and 21."""
    least, most = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (most + 0.05) / (least + 0.05)


def seen(colour: str, vision: str) -> Array:
    """Return a colour as an eye sees it, in OKLab, where equal distances look equally far."""
    light = np.clip(linear(colour) @ VISION[vision].T, 0, 1)
    shown: Array = np.cbrt(light @ TO_LMS.T) @ TO_OKLAB.T
    return shown


@pytest.mark.parametrize(("colours", "ground"), [(LIGHT, LIGHT_GROUND), (DARK, DARK_GROUND)])
def test_each_colour_stands_out_from_its_ground(colours: tuple[str, ...], ground: str) -> None:
    assert len(colours) == 8
    assert min(contrast(colour, ground) for colour in colours) >= 3


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_colours_can_be_told_apart(colours: tuple[str, ...], vision: str) -> None:
    apart = [
        float(np.linalg.norm(seen(one, vision) - seen(other, vision)))
        for one, other in combinations(colours, 2)
    ]
    assert min(apart) > 0.075


def test_colours_with_dashes_are_many() -> None:
    assert len(set(DASHES)) == len(DASHES) == 6


@pytest.mark.parametrize("ends", [HEAT_LIGHT, HEAT_DARK])
def test_a_full_cell_stands_out_from_an_empty_one(ends: tuple[str, str]) -> None:
    assert contrast(*ends) >= 4.5
