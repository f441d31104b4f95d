"""Dice of random scenarios."""

from fedsim.fuzz.dice import Dice
from fedsim.fuzz.random_scenarios import random_scenario
from fedsim.rng import Key


def test_dice_fall_the_same_way_for_ever() -> None:
    dice = Dice(Key.root(1).child("a name"))
    assert [dice.whole(0, 99) for _ in range(5)] == [57, 7, 41, 74, 99]
    assert [dice.child("part").whole(0, 99), dice.child("part").whole(0, 99)] == [63, 63]
    assert random_scenario(3) == random_scenario(3)
