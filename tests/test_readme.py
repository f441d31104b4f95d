"""README.md keeps what it promises: the demo's table, its commands and its links. It is short."""

import re
from pathlib import Path

import demo_report
import pytest

from fedsim.studies.answer_files import Answers, read_folder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Answers]:
    """What the demo prints, and what its runs answer."""
    folder = tmp_path_factory.mktemp("demo") / "runs"
    return demo_report.demo(folder), read_folder(folder)


def _rows(text: str) -> dict[str, list[str]]:
    """Return the last columns of each method in the first table: time, bytes, traffic, parameters, drops."""
    rows = re.findall(r"^((?:local|fedavg|fedmd|dsfl) .*)$", text.partition("\n\nwhere")[0], re.M)
    cells = [re.split(r"  +", row) for row in rows]
    return {name: last for name, _, _, _, *last in cells}


def _order(text: str) -> list[str]:
    """Return the methods in the order in which the sentence names them."""
    return list(dict.fromkeys(re.findall(r"\b(?:local|fedavg|fedmd|dsfl)\b", text.partition("\n\n")[0])))


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_shows(demo: tuple[str, Answers]) -> None:
    """Except for figures that depend on what is learned, and so on the processor in their last digits."""
    block = re.search(r"<!-- demo table -->\n```\n(.*?)```\n<!-- end of demo table -->", README, re.S)
    assert block is not None
    printed, _ = demo
    assert len(_rows(printed)) == 4
    assert _rows(block[1]) == _rows(printed)
    for first, *between, last in (_order(block[1]), _order(printed)):  # two that take nearly as long
        assert (first, set(between), last) == ("dsfl", {"fedavg", "fedmd"}, "local")
    target, *_ = printed.partition(" accuracy")
    assert block[1].startswith(target)


@pytest.mark.slow
def test_what_the_readme_says_of_the_demo_holds_with_a_margin(demo: tuple[str, Answers]) -> None:
    """So it holds on any processor. The comments say what was measured, on several."""
    _, answers = demo
    found = {answer.setting.algorithm: answer for answer in answers.answers}
    assert all((answer.target, answer.seeds) == (0.88, 5) for answer in found.values())
    reached = {name: answer.reached for name, answer in found.items()}
    assert reached == {"dsfl": 5, "fedavg": 5, "fedmd": 5, "local": 0}

    def mean(figure: str, name: str) -> float:
        interval = found[name].figures[figure]
        assert interval is not None
        return interval.mean

    for figure, largest in {"bytes_to_target": 1 / 5, "time_to_target_s": 0.95}.items():  # 1/8 and 0.75
        assert mean(figure, "dsfl") < largest * mean(figure, "fedavg")
    final = {name: mean("final_accuracy", name) for name in found}
    assert final["fedavg"] > final["dsfl"] + 0.005  # 0.025
    assert abs(final["dsfl"] - final["fedmd"]) < 0.03  # 0.008
    assert final["fedmd"] > final["local"] + 0.02  # 0.05
    worst = {name: mean("final_accuracy_worst_decile", name) for name in found}
    assert worst["fedmd"] > worst["local"] + 0.02  # 0.08


def test_files_to_read_first_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"^\d\. `(fedsim/[\w/]+\.py)`", text, re.M)
    assert len(named) == 6
    assert all((ROOT / name).is_file() for name in named)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 20
    assert [link for link in links if "://" not in link and not (ROOT / link).is_file()] == []


def test_it_is_a_screen_and_a_half() -> None:
    assert len(README.splitlines()) <= 110


def test_first_commands_are_targets_of_make() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^make (\w+)", README, re.M))
    assert named == {"demo", "test"}
    assert named <= targets
