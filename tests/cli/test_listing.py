from collections.abc import Callable

import pytest
from click.testing import Result

from fedsim.cli.listing import FOLDERS
from fedsim.plugins import available

Call = Callable[..., Result]


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_every_plugin_is_listed_with_its_summary(call: Call, kind: str) -> None:
    result = call("list", kind)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()[2:]
    assert [line.split()[0] for line in lines] == [found.name for found in available(FOLDERS[kind])]
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_details_give_every_parameter_with_words(call: Call, kind: str) -> None:
    result = call("list", kind, "--details")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    parameters = [i for i, line in enumerate(lines) if line.startswith("  ") and line[2] != " "]
    assert len(parameters) == sum(len(found.plugin.Config.model_fields) for found in available(FOLDERS[kind]))
    assert all(lines[i + 1].startswith("      ") for i in parameters)


def test_an_unknown_kind_is_a_mistake(call: Call) -> None:
    result = call("list", "unicorns")
    assert result.exit_code == 2
    assert "algorithms" in result.stderr
