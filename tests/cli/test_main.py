import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Call = Callable[..., Result]


def test_help_and_version(call: Call) -> None:
    result = call("--help")
    assert result.exit_code == 0
    for name in ("run", "compare", "serve", "join", "token", "list", "check", "schema"):
        assert f"  {name} " in result.stdout
    version = call("--version")
    assert version.exit_code == 0
    assert version.stdout.startswith("fedsim ")


@pytest.mark.parametrize("name", ["run", "compare", "serve", "join", "token", "list", "check", "schema"])
def test_every_command_explains_itself(call: Call, name: str) -> None:
    result = call(name, "--help")
    assert result.exit_code == 0
    assert "Usage: " in result.stdout


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list", "devices"], ["run", "--help"], ["serve", "--help"], ["join", "--help"]]
)
def test_torch_is_not_loaded_where_it_is_not_needed(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from fedsim.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(sorted({'torch', 'sklearn', 'pyarrow', 'torchvision', 'aiohttp'} & sys.modules.keys()))\n"
    )
    shown = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines()[-1] == "[]"


def test_the_package_can_be_called() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "fedsim", "--help"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("Usage: fedsim ")


def test_a_private_plugin_of_the_working_folder_is_found(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    result = call("list", "devices")
    assert result.exit_code == 0
    assert sys.path[-1] == str(tmp_path)
