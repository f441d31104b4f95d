"""Verdicts on the papers' claims: hand-made results of studies."""

import tomllib
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import claims
import claims_page
import papers
import pytest
from claims import Comparison, cells_of, holm, judge, verdict
from hypothesis import given
from hypothesis import strategies as st
from papers import Result

from fedsim.studies.plan import load_study


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


def test_pairs_must_all_hold() -> None:
    claim = {"pairs": [["a", "b"], ["c", "d"]]}
    cells = {"a": CLOSE, "b": FAR, "c": [90.0, 91.5, 88.5], "d": [70.0, 71.0, 70.0]}
    assert said(claim, cells) == "shown"
    assert said(claim, cells | {"d": [90.0, 90.0, 90.0]}) == "not shown"


def test_a_margin_may_be_negative() -> None:
    cells = {"a": [79.6, 80.6, 79.05], "b": CLOSE}
    assert said({"order": [["a"], ["b"]]}, cells) == "contradicted"
    assert said({"order": [["a"], ["b"]], "margin": -1.0}, cells) == "shown"


def test_a_lead_that_is_smaller_than_the_margin_is_no_contradiction() -> None:
    cells = {"a": CLOSE, "b": [75.0, 76.2, 74.4]}
    assert said({"order": [["a"], ["b"]], "margin": 10.0}, cells) == "not shown"
    assert said({"order": [["b"], ["a"]], "margin": 10.0}, cells) == "contradicted"


@pytest.mark.parametrize("measure", ["loss", "bytes", "std_over_clients", "parameters_to_70"])
def test_less_is_better_of_costs(measure: str) -> None:
    claim = {"order": [["a"], ["b"]]}
    assert said(claim, {"a": [0.1, 0.12, 0.11], "b": [0.5, 0.4, 0.6]}, measure) == "shown"


def test_cells_are_alike_within_a_margin() -> None:
    cells = {"a": CLOSE, "b": [80.3, 81.1, 79.9], "c": [79.8, 80.9, 79.4]}
    assert said({"alike": ["a", "b", "c"], "margin": 2.0}, cells) == "shown"
    assert said({"alike": ["a", "b"], "margin": 2.0}, {"a": CLOSE, "b": FAR}) == "contradicted"
    assert said({"alike": ["a", "b"], "margin": 2.0}, {"a": CLOSE, "b": [77.0, 81.0, 79.0]}) == "not shown"


def test_a_ratio_lies_between_two_numbers() -> None:
    claim, name = {"ratio": ["a", "b"], "at_least": 2, "at_most": 4}, "parameters_to_50"
    assert said(claim, {"a": [300, 310, 290], "b": [100, 100, 101]}, name) == "shown"
    assert said(claim, {"a": [900, 910, 890], "b": [100, 100, 101]}, name) == "contradicted"
    assert said(claim, {"a": [200, 390, 290], "b": [100, 100, 101]}, name) == "not shown"


def test_a_value_lies_between_two_numbers() -> None:
    claim = {"value": "a", "at_least": 0.1, "at_most": 0.9}
    assert said(claim, {"a": [0.4, 0.5, 0.45]}, "weight") == "shown"
    assert said(claim, {"a": [0.01, 0.0, 0.02]}, "weight") == "contradicted"


def test_a_cell_may_have_to_be_the_best_for_most_clients() -> None:
    claim = {"best_for": "a", "than": ["b", "c"], "at_least": 60}
    cells = {"a": ["90 80 70", "90 80 71"], "b": ["80 80 60", "80 70 60"], "c": ["10 10 10", "10 10 10"]}
    assert said(claim, cells, "clients") == "shown"
    assert judge(claim, result(cells, "clients")).comparisons[0].differences == [100, 100]
    worse = cells | {"c": ["10 90 90", "10 90 90"]}
    assert said(claim, worse, "clients") == "contradicted"


@pytest.mark.parametrize("missed", [("a",), ("b",), ("a", "b")])
def test_a_target_that_was_not_reached_is_no_evidence(missed: Sequence[str]) -> None:
    cells: dict[str, list[float | str]] = {"a": [1, 2, 3], "b": [900, 910, 890]}
    for name in missed:
        cells[name][1] = ""
    for claim in ({"order": [["a"], ["b"]]}, {"ratio": ["b", "a"], "at_least": 2}):
        judgement = judge({"measure": "parameters_to_50", **claim}, result(cells, "parameters_to_50"))
        assert judgement.verdict == "not shown"
        words = claims_page._words(claim, judgement.comparisons[0], "parameters_to_50")
        assert words.endswith(": not reached with every seed")


def test_no_other_measure_may_be_missing() -> None:
    with pytest.raises(ValueError, match="b has no accuracy"):
        said({"order": [["a"], ["b"]]}, {"a": CLOSE, "b": [1, "", 2]})


def test_points_of_a_grid_must_all_hold() -> None:
    cells = {"a @ x": CLOSE, "b @ x": FAR, "a @ y": FAR, "b @ y": CLOSE}
    assert said({"order": [["a"], ["b"]], "at": ["x"]}, cells) == "shown"
    assert said({"order": [["a"], ["b"]], "at": ["x", "y"]}, cells) == "contradicted"
    assert said({"order": [["a @ x"], ["a @ y"]]}, cells) == "shown"


def test_the_losses_of_some_clients_are_a_measure() -> None:
    cells = {"a": ["1 9 3", "1 9 2"], "b": ["2 1 4", "2 1 5"]}
    found = result(cells, "client_losses")
    assert found.values("a", "client_losses[0,2]") == {0: 2.0, 1: 1.5}


def test_the_share_of_clients_that_chose_an_architecture_is_a_measure() -> None:
    cells = {"a": ["one two two two", "one one one two"]}
    found = result(cells, "architectures")
    assert found.values("a", "architectures[one]") == {0: 25.0, 1: 75.0}
    assert found.values("a", "architectures[*]") == {0: 75.0, 1: 75.0}
    assert found.values("a", "architectures[four]") == {0: 0.0, 1: 0.0}
    claim = {"measure": "architectures[*]", "value": "a", "at_most": 90}
    assert said(claim, cells, "architectures") == "shown"


def test_holms_procedure_stops_at_the_first_that_it_keeps() -> None:
    assert holm([0.01, 0.04, 0.03]) == [True, False, False]
    assert holm([0.01, 0.02, 0.04]) == [True, True, True]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_no_more_than_single_tests_and_no_less_than_bonferroni(p_values: list[float]) -> None:
    for p, rejected in zip(p_values, holm(p_values), strict=True):
        assert rejected <= (p <= claims.LEVEL)
        assert rejected >= (p <= claims.LEVEL / len(p_values))


def test_a_single_comparison_is_certain_exactly_if_its_interval_excludes_0() -> None:
    for values in product([-1.0, 0.5, 2.0], repeat=4):
        one = Comparison("a - b", values, values, [-value for value in values])
        assert one.interval is not None
        low, high = one.interval.low, one.interval.high
        assert low is not None
        assert high is not None
        if len(set(values)) > 1 and min(abs(low), abs(high)) > 1e-9:
            expected = "shown" if low > 0 else "contradicted" if high < 0 else "not shown"
            assert verdict([one]) == expected


@pytest.mark.parametrize(("measure", "expected"), [("accuracy", "not shown"), ("bytes", "shown")])
def test_equal_differences_are_certain_only_of_what_is_counted(measure: str, expected: str) -> None:
    claim = {"order": [["b"], ["a"]] if measure == "accuracy" else [["a"], ["b"]]}
    assert said(claim, {"a": [50.0, 50.0, 50.0], "b": [52.0, 52.0, 52.0]}, measure) == expected
    assert said(claim, {"a": [50.0, 50.0, 50.0], "b": [50.0, 50.0, 50.0]}, measure) == "not shown"


def test_a_claim_compares_something_and_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="compares nothing"):
        said({"order": [["a"]]}, {"a": CLOSE})
    with pytest.raises(ValueError, match="other seeds"):
        said({"order": [["a"], ["b"]]}, {"a": CLOSE, "b": [1.0]})


@pytest.mark.parametrize("name", papers.finished())
def test_no_settings_are_newer_than_their_result(name: str) -> None:
    assert papers.read_result(name).settings == papers.settings_hash(name), (
        f"{name}.toml has changed: run it again, then tools/papers.py"
    )


DOCUMENT = tomllib.loads(claims_page.FILE.read_text("utf-8"))


def test_a_table_shows_what_claims_compare_also_where_rows_lack_it() -> None:
    found = result({"a": ["", ""], "b": [70.0, 74.0]}, "best_global")
    assert claims_page._is_shown("best_global", found, {"best_global"})
    assert not claims_page._is_shown("best_global", found, {"accuracy"})
    assert claims_page._spread(found, "a", "best_global") == "-"
    assert claims_page._spread(found, "b", "best_global").startswith("72.0 ± ")
    reached = result({"a": [3e6, 5e6], "b": [3e6, ""]}, "parameters_to_70")
    assert claims_page._spread(reached, "a", "parameters_to_70").startswith("4 ± ")
    assert claims_page._spread(reached, "b", "parameters_to_70") == "not reached"


def test_a_table_shows_the_measures_of_claims_and_of_cells_with_a_column_of_their_own() -> None:
    claim = {"study": "s", "measure": "best_global", "order": [["a : untuned @ x"], ["b @ x"]]}
    other = {"study": "t", "order": [["c"], ["d"]]}
    assert claims_page._measures([claim, other, {"needs": "more"}], "s") == {"untuned", "best_global"}


def test_the_page_says_which_variants_have_collapsed() -> None:
    found = result({"a": [80.0, 10.0, 82.0], "b": CLOSE, "c": [""]})
    assert list(claims_page._collapses(found)) == [
        "a has collapsed with 1 of 3 seeds, where it has 10.0 %; with the best it has 82.0 %.",
        "",
    ]


def test_the_page_judges_each_point_of_a_claim_of_several() -> None:
    cells = {"a @ x": CLOSE, "b @ x": FAR, "a @ y": FAR, "b @ y": CLOSE}
    claim = {"study": "s", "order": [["a"], ["b"]], "at": ["x", "y"]}
    assert claims_page._by_point(claim, {"s": result(cells)}) == " (x: shown, y: contradicted)"
    assert claims_page._by_point({**claim, "at": ["x"]}, {"s": result(cells)}) == ""


KEYS = {"id", "study", "says", "paper", "measure", "at", "margin", "experiments", "reason"}
FORMS = {"order", "pairs", "alike", "ratio", "value", "best_for"}


def test_claims_name_cells_that_their_studies_have_and_nothing_unknown() -> None:
    known = {
        name: {
            papers.cell_of(setting)
            for study in claims_page.studies_of(name, about)
            for setting in load_study(papers.STUDIES / f"{study}.toml").settings
        }
        for name, about in DOCUMENT["study"].items()
    }
    for claim in DOCUMENT["claim"]:
        if "needs" in claim:
            assert claim.keys() == {"id", "says", "needs"}
            continue
        assert claim.keys() - KEYS - {"at_least", "at_most", "than"} <= FORMS
        assert len(claim.keys() & FORMS) == 1, claim["id"]
        for study, cell in cells_of(claim):
            variant, at, point = cell.partition(" @ ")
            assert variant.partition(" : ")[0] + at + point in known[study], claim["id"]
    for name, about in DOCUMENT["study"].items():
        assert about.get("figures", {}).keys() <= known[name]


def test_the_page_has_a_verdict_for_each_claim_whose_study_has_a_result() -> None:
    rows = [line for line in claims_page.page().splitlines() if line.startswith("| R-")]
    assert len(rows) == len(DOCUMENT["claim"])
    results = claims_page.results_of(DOCUMENT)
    done = [claim for claim in DOCUMENT["claim"] if claim.get("study") in results]
    judged = [
        row for row in rows if any(row.endswith(f"| {words} |") for words in claims_page.SHOWN.values())
    ]
    assert len(judged) == len(done)
