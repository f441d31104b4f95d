"""The command as a whole: help, completion, and what is imported when."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

from fedsim import portable_numerics
from fedsim.__main__ import start
from fedsim.api import sockets
from fedsim.cli import main, options
from fedsim.cli.error_handling import MEANT
from fedsim.cli.plugin_kinds import FOLDERS
from tests.cli.conftest import Call

NAMES = [
    "run",
    "resume",
    "extend",
    "fork",
    "compare",
    "study",
    "validate",
    "fuzz",
    "report",
    "timeline",
    "energy",
    "calibrate",
    "diff",
    "track",
    "serve",
    "join",
    "token",
    "list",
    "check",
    "new",
    "devices",
    "schema",
    "completion",
]
HEAVY = {"torch", "numpy", "pydantic", "sklearn", "pyarrow", "torchvision", "aiohttp", "rich", "asyncio"}


def fedsim(*arguments: str, script: str = "", **environment: str) -> str:
    """Return what a new process prints."""
    program = ["-c", script] if script else ["-m", "fedsim"]
    return subprocess.run(  # noqa: S603
        [sys.executable, *program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    ).stdout


def leaves(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from leaves(command)
        else:
            yield command


def test_help_and_version(call: Call) -> None:
    result = call("--help")
    assert result.exit_code == 0
    for name in NAMES:
        assert f"  {name} " in result.stdout
        assert main.commands[name].get_short_help_str(100) in result.stdout
    version = call("--version")
    assert version.exit_code == 0
    assert version.stdout.startswith("fedsim ")


def test_an_unknown_command_is_a_mistake(call: Call) -> None:
    result = call("dance")
    assert result.exit_code == 2
    assert "No such command 'dance'" in result.stderr


@pytest.mark.parametrize(("word", "command"), MEANT.items())
def test_words_of_other_programs_lead_to_commands(call: Call, word: str, command: str) -> None:
    assert word not in NAMES
    assert command in NAMES
    result = call(word, "runs")
    assert result.exit_code == 2
    assert f"No such command '{word}'. Did you mean '{command}'?" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("schema",),
        ("--help",),
        ("token", "new", "--help"),
        *((name, "--help") for name in NAMES),
        *(("list", kind, "--details", *more) for kind in FOLDERS for more in ((), ("--json",))),
    ],
)
def test_nothing_refers_to_what_users_do_not_have(call: Call, arguments: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert result.exit_code == 0
    assert re.search(r"specification|D-\d{3}-\d", result.stdout, re.IGNORECASE) is None


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        *((command, {}) for command in leaves(main)),
        (main.commands["run"], {"bus": "http"}),
        (main.commands["list"], {"kind": "columns"}),
    ],
)
def test_what_does_the_work_takes_what_its_command_gives(
    command: click.Command, changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, set[str]]] = []

    def note(place: str) -> Callable[..., None]:
        return lambda **values: calls.append((place, set(values)))

    assert command.callback is not None
    monkeypatch.setattr(sys.modules[command.callback.__module__], "late", note)
    command.callback(**dict.fromkeys(one.name for one in command.params) | changes)
    ((place, given),) = calls
    module, _, name = place.partition(":")
    worker = getattr(import_module(f"fedsim.{module}"), name)
    taken = set(inspect.signature(worker).parameters)
    if "options" in taken:  # those that several commands share
        (shared,) = get_args(get_type_hints(worker)["options"])
        taken = taken - {"options"} | set(shared.__annotations__)
    if "settings" in taken:
        taken = taken - {"settings"} | set(inspect.signature(sockets.join).parameters) - {"tell"}
    assert taken == given


STEPS = [
    *([name, "--help"] if name else ["--help"] for name in ("", *NAMES)),
    *(["list", kind, *options] for kind in FOLDERS for options in ([], ["--json"])),
    ["list", "devices", "--details"],
    ["check", "quickstart"],
    ["check of a study"],
    ["a run"],
]
"""What one process does, from what imports least to what imports most; the last two are no commands."""

IMPORTING = """
import json, sys
from fedsim.cli import main
*steps, study, last = json.loads(sys.argv[1])
def note(step):
    print(json.dumps([step, sorted(sys.modules)]), file=sys.stderr)
for step in steps:
    main(step, prog_name="fedsim", standalone_mode=False)
    note(step)
import fedsim.cli.check
note(study)
import fedsim.cli.run
from fedsim.plugins import available
available("fedsim.models")
note(last)
"""


@pytest.fixture(scope="module")
def imported() -> Callable[..., set[str]]:
    """Which modules are loaded after a step."""
    command = [sys.executable, "-c", IMPORTING, json.dumps(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [step for step, _ in lines] == STEPS
    loaded = {tuple(step): set(modules) for step, modules in lines}
    return lambda *step: loaded[step]


def test_neither_a_simulated_run_nor_listing_the_models_loads_what_others_need(
    imported: Callable[..., set[str]],
) -> None:
    loaded = imported("a run")
    assert "torch" in loaded
    assert not {"aiohttp", "torchvision"} & loaded


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in NAMES)])
def test_help_imports_nothing_heavy(arguments: list[str], imported: Callable[..., set[str]]) -> None:
    assert not HEAVY & imported(*arguments)


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("kind", list(FOLDERS))
def test_a_list_of_names_imports_no_plugin(
    kind: str, options: list[str], imported: Callable[..., set[str]]
) -> None:
    assert not (HEAVY - {"pydantic", "rich", "asyncio"}) & imported("list", kind, *options)


def test_torch_is_not_loaded_to_describe_devices(imported: Callable[..., set[str]]) -> None:
    assert not {"torch", "sklearn", "pyarrow", "torchvision", "aiohttp"} & imported(
        "list", "devices", "--details"
    )


@pytest.mark.parametrize("step", [("check", "quickstart"), ("check of a study",)])
def test_a_check_imports_no_compiler_and_no_statistics(
    step: tuple[str, ...], imported: Callable[..., set[str]]
) -> None:
    loaded = imported(*step)
    assert "torch" in loaded
    assert not {"torch._dynamo", "sklearn", "scipy", "pandas", "pyarrow", "torchvision", "aiohttp"} & loaded


def complete(words: str, place: int, script: str = "") -> list[str]:
    return fedsim(
        script=script, _FEDSIM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(place)
    ).splitlines()


def test_the_shell_completes_commands_and_options() -> None:
    assert complete("fedsim ", 1) == [f"plain,{name}" for name in sorted(NAMES)]
    assert complete("fedsim list d", 2) == ["plain,datasets", "plain,devices"]
    # Also behind options whose values would have to be read.
    words = "fedsim serve s.toml --seed x --listen nowhere --tls"
    assert complete(words, 7) == ["plain,--tls-cert", "plain,--tls-key"]


@pytest.mark.parametrize(
    ("words", "place", "last"),
    [
        ("fedsim join --seed 1 --pat", 4, "--patience"),
        ("fedsim compare quickst", 2, "quickstart"),
        ("fedsim compare quickstart --algorithms local,fedpro", 4, "local,fedprox"),
    ],
)
def test_completion_imports_nothing_heavy(words: str, place: int, last: str) -> None:
    script = (
        "import sys\n"
        "from fedsim.__main__ import start\n"
        "try:\n"
        "    start()\n"
        "finally:\n"
        f"    print(sorted({HEAVY} & sys.modules.keys()))\n"
    )
    assert complete(words, place, script)[-2:] == [f"plain,{last}", "[]"]


def test_a_run_of_portable_numbers_starts_the_command_anew(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise portable_numerics.FreshProcessError("this process is not portable")

    words = ["fedsim", "run", "tiny.toml", "--seed", "1", "--set", "engine.numerics=portable"]
    restarted: list[list[str]] = []
    monkeypatch.setattr(portable_numerics, "require", refuse)
    monkeypatch.setattr(portable_numerics, "restart", restarted.append)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *words])
    start()
    assert restarted == [[sys.executable, *words]]
    assert [path.name for path in here.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize("place", ["fedsim.cli.run", "fedsim.cli.values"])
def test_ctrl_c_while_a_command_is_imported(call: Call, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def interrupted(module: str) -> object:
        if module == place:
            raise KeyboardInterrupt
        return import_module(module)

    monkeypatch.setattr(options, "import_module", interrupted)
    result = call("run", "tiny.toml", "--seed", "1")
    assert result.exit_code == 130
    assert result.stderr == "fedsim: interrupted: nothing was left half-written\n"


def test_a_private_plugin_of_the_working_folder_is_found(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    result = call("list", "devices")
    assert result.exit_code == 0
    assert sys.path[-1] == str(tmp_path)
