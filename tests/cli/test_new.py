from pathlib import Path

import pytest

from fedsim import example_files
from fedsim.scenario import load_scenario
from fedsim.studies.plan import load_study
from tests.cli.conftest import Call


def test_an_example_is_written_to_start_from(call: Call, here: Path) -> None:
    result = call("new", "quickstart")
    assert result.exit_code == 0, result.output
    assert load_scenario(here / "quickstart.toml") == load_scenario("quickstart")
    again = call("new", "quickstart")
    assert again.exit_code == 2
    assert "quickstart.toml exists already" in again.stderr
    assert call("new", "quickstart", "--force").exit_code == 0


def test_so_is_an_example_of_a_study(call: Call, here: Path) -> None:
    result = call("new", "studies/first_to_reach")
    assert result.exit_code == 0, result.output
    assert "try it: fedsim study first_to_reach.toml" in result.stderr
    assert load_study(here / "first_to_reach.toml").runs == load_study("first_to_reach").runs
    assert "studies/first_to_reach" not in example_files.names()


def test_the_files_that_it_names_come_along(call: Call, here: Path) -> None:
    result = call("new", "fleet_files", "study/mine.toml")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (here / "study").iterdir()) == ["fleet_files.csv", "mine.toml"]
    file = load_scenario(here / "study" / "mine.toml").fleet[0].file
    assert file == f"{here}/study/./fleet_files.csv"


def test_an_unknown_example_is_told(call: Call) -> None:
    result = call("new", "quikstart")
    assert result.exit_code == 2
    assert "no example is called 'quikstart': did you mean 'quickstart'?" in result.stderr


@pytest.mark.parametrize("name", example_files.names())
def test_every_example_loads_by_its_name(name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    assert load_scenario(name).num_clients > 0
    assert all(file.is_file() for file in example_files.companions(name))
