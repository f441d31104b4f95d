"""README.md keeps what it promises: the demo's table, its commands and its links. It is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsim.report import number_format
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_what_the_demo_moves_is_what_its_table_says() -> None:
    """Times and bytes do not depend on what is learned: nothing is trained here."""
    block = re.search(r"<!-- demo table -->\n```\n(.*?)```\n<!-- end of demo table -->", README, re.S)
    assert block is not None
    moved = {}
    (compared,) = re.findall(r"fedsim compare .*--algorithms (\S+)", (ROOT / "Makefile").read_text())
    for algorithm in compared.split(","):
        scenario = load_scenario(
            ROOT / "scenarios" / "quickstart.toml",
            ["engine.executor=null", "evaluation.every=0"],
            algorithm=algorithm,
        )
        result = run(build(scenario))
        totals = result.totals
        moved[algorithm] = totals.bytes_up + totals.bytes_down
        row = re.search(rf"^{algorithm} .*$", block[1], re.M)
        assert row is not None
        cells = [cell.rstrip("*") for cell in re.split(r"  +", row[0])]
        assert cells[-6:-3] == [
            number_format.duration(result.simulated_s),
            number_format.size(totals.bytes_up),
            number_format.size(totals.bytes_down),
        ]
        assert cells[-2:] == [number_format.count(totals.parameters_up + totals.parameters_down), "0"]
    assert len(moved) == 4
    assert 10 * moved["fedmd"] <= moved["fedavg"]


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
