"""Verdicts on the papers' claims: hand-made results of studies."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import claims
import claims_page
import papers
import pytest
from claims import Comparison, holm, judge, verdict
from hypothesis import given
from hypothesis import strategies as st
from papers import Result


def result(cells: Mapping[str, Sequence[float | str]], measure: str = "accuracy") -> Result:
    """Return a result with the values of cells by seed."""
    rows = [
        {"cell": cell, "seed": str(seed), measure: str(value)}
        for cell, values in cells.items()
        for seed, value in enumerate(values)
    ]
    return Result("study", "hash", "commit", 1.0, rows)


def said(
    claim: Mapping[str, Any], cells: Mapping[str, Sequence[float | str]], measure: str = "accuracy"
) -> str:
    return judge({"measure": measure, **claim}, result(cells, measure)).verdict


CLOSE, FAR = [80.0, 81.0, 79.5], [70.0, 71.5, 69.0]


def test_an_order_is_shown_contradicted_or_neither() -> None:
    claim = {"order": [["a"], ["b"]]}
    assert said(claim, {"a": CLOSE, "b": FAR}) == "shown"
    assert said(claim, {"a": FAR, "b": CLOSE}) == "contradicted"
    assert said(claim, {"a": CLOSE, "b": [80.5, 80.0, 80.0]}) == "not shown"


def test_an_order_of_tiers_compares_neighbouring_tiers() -> None:
    claim = {"order": [["a", "b"], ["c"], ["d", "e"]]}
    names = [one.words for one in judge(claim, result(dict.fromkeys("abcde", CLOSE))).comparisons]
    assert names == ["a - c", "b - c", "c - d", "c - e"]


def test_a_margin_may_be_negative() -> None:
    cells = {"a": [79.6, 80.6, 79.0], "b": CLOSE}
    assert said({"order": [["a"], ["b"]]}, cells) == "contradicted"
    assert said({"order": [["a"], ["b"]], "margin": -1.0}, cells) == "shown"


def test_less_loss_is_better() -> None:
    assert said({"order": [["a"], ["b"]]}, {"a": [0.1, 0.12, 0.11], "b": [0.5, 0.4, 0.6]}, "loss") == "shown"


def test_cells_are_alike_within_a_margin() -> None:
    cells = {"a": CLOSE, "b": [80.3, 81.1, 79.9], "c": [79.8, 80.9, 79.4]}
    assert said({"alike": ["a", "b", "c"], "margin": 2.0}, cells) == "shown"
    assert said({"alike": ["a", "b"], "margin": 2.0}, {"a": CLOSE, "b": FAR}) == "contradicted"
    assert said({"alike": ["a", "b"], "margin": 2.0}, {"a": CLOSE, "b": [77.0, 81.0, 79.0]}) == "not shown"


def test_a_ratio_lies_between_two_numbers() -> None:
    claim, name = {"ratio": ["a", "b"], "between": [2, 4]}, "parameters_to_50"
    assert said(claim, {"a": [300, 310, 290], "b": [100, 100, 101]}, name) == "shown"
    assert said(claim, {"a": [900, 910, 890], "b": [100, 100, 101]}, name) == "contradicted"
    assert said(claim, {"a": [200, 390, 290], "b": [100, 100, 101]}, name) == "not shown"


def test_a_value_lies_between_two_numbers() -> None:
    claim = {"value": "a", "between": [0.1, 0.9]}
    assert said(claim, {"a": [0.4, 0.5, 0.45]}, "weight") == "shown"
    assert said(claim, {"a": [0.01, 0.0, 0.02]}, "weight") == "contradicted"


def test_a_cell_may_have_to_be_the_best_for_most_clients() -> None:
    claim = {"best_for": "a", "than": ["b", "c"], "between": [60, 100.1]}
    cells = {"a": ["90 80 70", "90 80 71"], "b": ["80 70 60", "80 70 60"], "c": ["10 10 10", "10 10 10"]}
    assert said(claim, cells, "clients") == "shown"
    assert judge(claim, result(cells, "clients")).comparisons[0].differences == [100, 100]
    worse = cells | {"c": ["10 90 90", "10 90 90"]}
    assert said(claim, worse, "clients") == "contradicted"


def test_a_target_that_was_not_reached_is_no_evidence() -> None:
    claim = {"order": [["a"], ["b"]]}
    assert said(claim, {"a": [1, 2, 3], "b": [900, "", 890]}, "parameters_to_50") == "not shown"


def test_points_of_a_grid_must_all_hold() -> None:
    cells = {"a @ x": CLOSE, "b @ x": FAR, "a @ y": FAR, "b @ y": CLOSE}
    assert said({"order": [["a"], ["b"]], "at": ["x"]}, cells) == "shown"
    assert said({"order": [["a"], ["b"]], "at": ["x", "y"]}, cells) == "contradicted"
    assert said({"order": [["a @ x"], ["a @ y"]]}, cells) == "shown"


def test_holms_procedure_stops_at_the_first_that_it_keeps() -> None:
    assert holm([0.01, 0.04, 0.03]) == [True, False, False]
    assert holm([0.01, 0.02, 0.04]) == [True, True, True]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_no_more_than_single_tests_and_no_less_than_bonferroni(p_values: list[float]) -> None:
    for p, rejected in zip(p_values, holm(p_values), strict=True):
        assert rejected <= (p <= claims.LEVEL)
        assert rejected >= (p <= claims.LEVEL / len(p_values))


def test_an_interval_excludes_0_exactly_if_the_p_value_is_below_5_percent() -> None:
    for values in product([-1.0, 0.5, 2.0], repeat=4):
        one = Comparison("a - b", values, values)
        low, high = one.interval.low, one.interval.high
        assert low is not None
        assert high is not None
        if not math.isclose(one.p, claims.LEVEL, abs_tol=1e-9) and len(set(values)) > 1:
            assert (low > 0 or high < 0) == (one.p < claims.LEVEL)


def test_seeds_that_all_agree_are_certain_and_equal_ones_are_a_tie() -> None:
    assert verdict([Comparison("a - b", [2.0, 2.0, 2.0], [2.0, 2.0, 2.0])]) == "shown"
    assert verdict([Comparison("a - b", [0.0, 0.0, 0.0], [0.0, 0.0, 0.0])]) == "not shown"


@pytest.mark.parametrize("name", papers.finished())
def test_no_settings_are_newer_than_their_result(name: str) -> None:
    assert papers.read_result(name).settings == papers.settings_hash(name), (
        f"{name}.toml has changed: run it again, then tools/papers.py"
    )


def test_every_claim_of_the_page_is_judged_by_cells_that_there_are() -> None:
    text = claims_page.page()
    assert "not run yet" in text or "shown" in text
