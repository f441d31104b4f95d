"""The tables and the pictures of the manual's page on phones."""

import math

import numpy as np
import papers
import phones_page
import pytest
from PIL import Image

from fedsim.studies.plan import load_study


def rows_of(table: str) -> list[list[str]]:
    """Return the cells of a table of Markdown, without its heads."""
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[word.strip() for word in line.strip("|").split("|")] for line in lines[1:]]


def test_the_tables_have_every_variant_and_mark_the_best() -> None:
    plan = load_study(papers.STUDIES / f"{phones_page.STUDY}.toml")
    variants = [setting.variant for setting in plan.settings]
    reached, costs = rows_of(phones_page.table()), rows_of(phones_page.table_of_costs())
    assert [row[0] for row in reached] == [row[0] for row in costs] == variants
    budgets = len(plan.config.at.simulated) + len(plan.config.at.bytes)
    assert {len(row) for row in reached} == {budgets + 3}  # the name, the difference, the end
    for column in range(1, budgets + 3):
        assert any(row[column].endswith("*") for row in reached)


def test_training_alone_does_not_differ_from_itself_and_sends_nothing() -> None:
    (alone,) = (row for row in rows_of(phones_page.table()) if row[0] == phones_page.ALONE)
    assert alone[phones_page.DIFFERENCE + 1] == "+0.0 ± 0.0"
    (costs,) = (row for row in rows_of(phones_page.table_of_costs()) if row[0] == phones_page.ALONE)
    assert costs[3] == "0 B"


def test_accuracies_are_interpolated_between_evaluations() -> None:
    curve = {
        "round": np.array([40.0, 50.0]),
        "simulated_s": np.array([10.0, 20.0]),
        "bytes_up": np.array([1e6, 3e6]),
        "bytes_down": np.array([1e6, 5e6]),
        "accuracy_personal_mean": np.array([0.5, 0.6]),
    }
    assert phones_page.accuracy_at(curve, "round", 46) == pytest.approx(56)
    assert phones_page.accuracy_at(curve, "simulated_s", 60.0) == pytest.approx(60)
    assert phones_page.accuracy_at(curve, "bytes", 5e6) == pytest.approx(55)  # of 2 and 8 MB
    assert math.isnan(phones_page.accuracy_at(curve, "bytes", 1e6))


def test_methods_are_compared_after_as_many_rounds_with_images_sent_and_on_phones() -> None:
    rows = rows_of(phones_page.table_of_rounds())
    assert [row[1] for row in rows if row[0] == "-"] == [*phones_page.MODELS]
    for images, sends in (("sent", True), ("on phones", False)):
        own = [row for row in rows if row[0] == images]
        assert [row[1] for row in own] == [*phones_page.PREDICTIONS]
        assert all((row[-1] != "0 B") is sends for row in own)


@pytest.mark.parametrize("name", ["phones-time", "phones-bytes", "phones-buffered"])
def test_the_pictures_show_the_result(name: str) -> None:
    figure = phones_page.figures()[name]
    labels = {line.label for line in figure.chart.lines if len(line.x)}  # type: ignore[union-attr]
    assert (
        labels
        == {
            "phones-time": {*phones_page.ROUNDS},
            "phones-bytes": {*phones_page.SENDING},
            "phones-buffered": {*phones_page.BUFFERED},
        }[name]
    )
    with Image.open(phones_page.PICTURES / f"{name}.png") as picture:
        assert figure.text in picture.info["Description"], "draw it anew: python tools/phones_page.py"
