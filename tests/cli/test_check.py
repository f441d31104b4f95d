from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Call = Callable[..., Result]


def test_a_check_shows_what_a_scenario_comes_to_and_writes_nothing(call: Call, here: Path) -> None:
    result = call("check", "tiny.toml")
    assert result.exit_code == 0, result.output
    for words in (
        "Fleet: 4 clients",
        "Data: samples of a client",
        "Models",
        "Computing",
        "Frames in 2 rounds",
    ):
        assert words in result.stdout
    assert "650" in result.stdout
    assert [path.name for path in here.iterdir()] == ["tiny.toml"]


def test_a_check_takes_another_algorithm_and_values(call: Call) -> None:
    result = call("check", "tiny.toml", "--algorithm", "fedmd", "--set", "run.rounds=50")
    assert result.exit_code == 0, result.output
    assert "tiny, fedmd, 50 rounds" in result.stdout
    assert "logits_up" in result.stdout
    assert "  50 rounds  about" in result.stdout


def test_dropped_clients_are_told(call: Call) -> None:
    result = call("check", "tiny.toml", "--set", "participation.client_timeout=1 ms")
    assert result.exit_code == 0, result.output
    assert "4 of 4 askings were dropped" in result.stdout


@pytest.mark.parametrize(
    "arguments", [["check", "tiny.toml", "--set", "data.public.size=0"], ["check", "no.toml"]]
)
def test_faults_exit_with_2(call: Call, arguments: list[str]) -> None:
    result = call(*arguments, "--algorithm", "fedmd")
    assert result.exit_code == 2
    assert result.stderr.startswith("fedsim: ")
