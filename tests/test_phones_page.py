"""The table and the pictures of the manual's page on phones."""

import papers
import phones_page
import pytest
from PIL import Image

from fedsim.studies.plan import load_study


def test_the_table_has_every_variant_and_marks_the_best() -> None:
    plan = load_study(papers.STUDIES / "phones.toml")
    rows = [line for line in phones_page.table().splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [s.variant for s in plan.settings]
    assert all(row.count("|") == 9 for row in rows)
    assert sum(row.count("*") for row in rows) == 5  # one in each column of accuracies


@pytest.mark.parametrize("name", ["phones-time", "phones-bytes", "phones-buffered"])
def test_the_pictures_show_the_result(name: str) -> None:
    figure = phones_page.figures()[name]
    labels = {line.label for line in figure.chart.lines}  # type: ignore[union-attr]
    assert labels in ({*phones_page.ROUNDS}, {*phones_page.BUFFERED})
    with Image.open(phones_page.PICTURES / f"{name}.png") as picture:
        assert figure.text in picture.info["Description"], "draw it anew: python tools/phones_page.py"
