"""Oort: hand-computed utilities, exploration, the pacer, and who is passed over."""

from collections.abc import Mapping
from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Fact, LossMeasure
from fedsim.runtime.policies.selectors.oort import PLUGIN, Oort, OortConfig, Pacer, utilities

NAN = float("nan")


def settings(**params: object) -> OortConfig:
    return OortConfig.model_validate(params)


def offered(round: int = 1, sizes: tuple[int, ...] = (), **facts: list[float]) -> Candidates:  # noqa: A002
    """Return all clients as candidates, with these facts."""
    num = len(facts["losses"])
    known: Mapping[Fact, Array] = {
        "losses": np.array(facts["losses"]),
        "turnaround_s": np.array(facts.get("turnaround_s", [NAN] * num)),
        "times_asked": np.array(facts.get("times_asked", [1] * num)),
        "last_merged": np.array(facts.get("last_merged", [1] * num)),
    }
    size_of = np.array(sizes or (1,) * num)
    everybody = np.arange(num)
    return Candidates(
        everybody, everybody[:0], None, 0.0, lambda clients: size_of[clients], known.__getitem__, round
    )


def chosen(candidates: Candidates, count: int, seed: int = 0, **params: object) -> list[int]:
    selector: Oort = PLUGIN(settings(**params))
    picked = selector.select(candidates, count, Key.root(seed)).tolist()
    assert len(picked) == len(set(picked)) == min(count, len(candidates.clients))
    return sorted(picked)


def test_utility_is_loss_uncertainty_and_speed() -> None:
    found = utilities(
        np.array([10.0, 20.0, 40.0, 30.0]),
        np.array([1, 2, 4, 8]),
        np.array([1.0, 4.0, 8.0, NAN]),
        preferred_s=4.0,
        round=8,
        config=settings(clip=0.6),
    )
    # Of four the third in order is the 0.6 quantile: 40 is clipped to 30; the scale is from 9.99 to 40.
    losses = [0.01, 10.01, 20.01, 20.01]
    uncertain = [sqrt(0.1 * log(8) / last) for last in (1, 2, 4, 8)]
    system = [1, 1, (4 / 8) ** 2, 1]
    expected = [
        (loss / 30.01 + doubt) * factor for loss, doubt, factor in zip(losses, uncertain, system, strict=True)
    ]
    assert found == pytest.approx(expected)


def test_clients_tell_the_root_of_the_mean_square() -> None:
    assert PLUGIN(settings(samples=9)).measure == LossMeasure("root_mean_square", 9)


def test_at_first_all_are_new() -> None:
    assert len({tuple(chosen(offered(losses=[NAN] * 6), 2, seed)) for seed in range(99)}) == 15


def test_new_clients_are_drawn_by_speed_where_one_is_known() -> None:
    # Client 2, asked without success, took 3 s; the others count as the median, 1 s.
    candidates = offered(losses=[NAN, NAN, NAN, 1.0, 1.0], turnaround_s=[NAN, NAN, 3.0, 1.0, 1.0])
    firsts = [chosen(candidates, 1, seed, exploration=1.0)[0] for seed in range(1400)]
    counts = np.bincount(firsts, minlength=5)
    assert np.abs(counts - 1400 * np.array([3, 3, 1, 0, 0]) / 7).max() < 80  # the standard deviation is 19


def test_exploration_shrinks_to_a_floor() -> None:
    losses = [1.0] * 10 + [NAN] * 10

    def num_new(round: int) -> int:  # noqa: A002
        return sum(client >= 10 for client in chosen(offered(round, losses=losses), 10))

    # 9; 10 * 0.9 * 0.98 ** 4 = 8.3, and 8 or 9 of that; 2 at last.
    assert num_new(1) == 9
    assert num_new(5) in (8, 9)
    assert num_new(500) == 2


def test_a_part_of_a_new_client_is_one_with_its_probability() -> None:
    candidates = offered(losses=[1.0, NAN])
    new = sum(chosen(candidates, 1, seed, exploration=0.3) == [1] for seed in range(1000))
    assert abs(new - 300) < 60  # the standard deviation is 14


def test_those_above_the_cut_off_are_drawn_in_proportion_to_utility() -> None:
    # Scaled losses: 1, about 2/3, 1/3 and 0; the one wanted would be client 0, the cut-off half its utility.
    candidates = offered(losses=[40.0, 30.0, 20.0, 10.0])
    params = {"exploration": 0.0, "least_exploration": 0.0, "cut_off": 0.5, "clip": 1.0}
    counts = np.bincount([chosen(candidates, 1, seed, **params)[0] for seed in range(1000)], minlength=4)
    assert counts[2:].tolist() == [0, 0]
    assert abs(counts[0] - 600) < 70  # the standard deviation is 15


def test_sizes_count_in_utility() -> None:
    candidates = offered(losses=[1.0, 1.0, 1.0], sizes=(1, 5, 2))
    assert chosen(candidates, 1, exploration=0.0, least_exploration=0.0, clip=1.0) == [1]


def test_the_preferred_duration_is_a_quantile_of_known_times() -> None:
    params = {"exploration": 0.0, "least_exploration": 0.0, "clip": 1.0, "cut_off": 1.0}

    def first(**more: float) -> list[int]:
        candidates = offered(losses=[4.0, 3.0, 1.0], turnaround_s=[9.0, 1.0, 1.0])
        return chosen(candidates, 1, 0, **params, **more)

    assert first(duration=0.5) == [1]  # client 0 takes nine times as long
    assert first(duration=1.0) == [0]
    assert first(duration=0.5, penalty=0.0) == [0]


def test_where_one_kind_is_too_few_the_other_fills_up() -> None:
    assert chosen(offered(losses=[1.0, 1.0, NAN]), 3) == [0, 1, 2]
    assert chosen(offered(losses=[1.0, NAN, NAN]), 9, exploration=0.0, least_exploration=0.0) == [0, 1, 2]


def test_a_blacklisted_client_comes_last() -> None:
    candidates = offered(losses=[1.0, 9.0, NAN, NAN], times_asked=[1, 3, 0, 3])
    assert chosen(candidates, 2, blacklist_after=3) == [0, 2]
    assert set(chosen(candidates, 3, blacklist_after=3)) > {0, 2}


def test_nobody_is_chosen_of_nobody() -> None:
    assert chosen(offered(losses=[]), 3) == []


def test_the_pacer_waits_longer_where_less_is_achieved() -> None:
    config = settings(pacer_step=2)
    pacer = Pacer(0.3)
    quantiles = []
    # Utilities of client 0 in rounds 1 to 8; each is known when the next round begins.
    for number, utility in enumerate([5.0, 5.0, 4.0, 5.0, 5.0, 6.0, 6.0, 1.0, 1.0], 1):
        pacer = pacer.begun(number, np.array([utility, NAN]), config)
        assert pacer.begun(number, np.array([utility, NAN]), config) is pacer  # by a second selection
        pacer = replace(pacer, drawn=(0, 1))
        quantiles.append(round(pacer.quantile, 2))
    # After round 4: 5 + 4 before, 5 + 5 since. After 6: 10, 12. After 8: 12, 2.
    assert quantiles == [0.3] * 8 + [0.35]


def test_more_exploration_at_last_than_at_first_is_refused() -> None:
    with pytest.raises(ValidationError, match="from which it shrinks"):
        settings(exploration=0.1)
