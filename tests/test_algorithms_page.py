"""The page of the algorithms is that of the classes."""

import algorithms_page

from fedsim.plugins import available


def test_the_page_is_written_anew_when_an_algorithm_changes() -> None:
    assert algorithms_page.PAGE.read_text("utf-8") == algorithms_page.page(), (
        "run: python tools/algorithms_page.py"
    )


def test_every_algorithm_is_on_it() -> None:
    page = algorithms_page.page()
    assert all(f"| `{found.name}` |" in page for found in available("fedsim.algorithms"))
