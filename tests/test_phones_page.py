"""The table and the pictures of the manual's page on phones."""

import papers
import phones_page
import pytest

from fedsim.studies.plan import load_study


def test_the_table_has_every_variant_and_marks_the_best() -> None:
    plan = load_study(papers.STUDIES / "phones.toml")
    rows = [line for line in phones_page.table().splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [s.variant for s in plan.settings]
    assert all(row.count("|") == 9 for row in rows)
    assert sum(row.count("*") for row in rows) <= 5


@pytest.mark.parametrize("name", ["phones-time", "phones-bytes", "phones-buffered"])
def test_the_pictures_are_of_the_study_s_variants(name: str) -> None:
    figure = phones_page.figures()[name]
    labels = {line.label for line in figure.chart.lines}  # type: ignore[union-attr]
    assert labels in ({*phones_page.ROUNDS}, {*phones_page.BUFFERED})
    assert figure.title in (phones_page.PICTURES / f"{name}.svg").read_text("utf-8")
