"""What a shell is told at a Tab, and a real bash."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from click.shell_completion import ShellComplete, get_completion_class

from fedsim import example_files
from fedsim.algorithms import fedprox
from fedsim.cli import completion, main
from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.config import Config
from fedsim.errors import ScenarioError
from fedsim.fleet.devices import Laptop
from fedsim.plugins import available
from fedsim.scenario import Scenario, load_scenario
from tests.conftest import there

COMPLETE = ShellComplete(main, {}, "fedsim", "_FEDSIM_COMPLETE")


def completed(*words: str) -> list[str]:
    """Return what the last word may become; files that the shell itself looks for are ``<files>``."""
    items = COMPLETE.get_completions(list(words[:-1]), words[-1])
    return [item.value if item.type == "plain" else f"<{item.type}s>" for item in items]


@pytest.mark.parametrize(
    ("option", "start", "class_or_module"),
    [("--algorithm", "fedpro", fedprox), ("--set", "fleet.0.device=lapt", Laptop)],
)
def test_names_come_with_their_summaries(option: str, start: str, class_or_module: Any) -> None:
    (item,) = COMPLETE.get_completions(["run", "quickstart", option], start)
    assert item.help == class_or_module.__doc__.splitlines()[0]


@pytest.mark.parametrize("command", ["run", "compare", "serve", "check"])
def test_scenarios_are_examples_and_files(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quiet.toml").touch()
    (tmp_path / "quiet.csv").touch()
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "one.toml").touch()
    assert completed(command, "qui") == ["quickstart", "quiet.toml"]
    assert set(example_files.names()) < set(completed(command, ""))
    assert completed(command, "papers/persfl_s") == ["papers/persfl_small"]
    assert completed(command, "lab/") == ["lab/one.toml"]
    assert completed(command, "nothing-like-it") == ["<files>"]
    assert completed(command, f"{tmp_path}/q") == [f"{tmp_path}/quiet.toml"]


def test_studies_are_too() -> None:
    assert completed("study", "studies/fi") == ["studies/first_to_reach"]
    assert completed("study", "quick") == ["<files>"]
    assert completed("check", "studies/fi") == ["studies/first_to_reach"]
    assert completed("new", "studies/fi") == ["studies/first_to_reach"]
    assert completed("new", "nothing-like-it") == []


def test_algorithms_are_completed_one_and_several() -> None:
    assert completed("run", "quickstart", "--algorithm", "fedp") == ["fedper", "fedprox"]
    assert completed("compare", "quickstart", "--algorithms", "fedp") == ["fedper", "fedprox"]
    assert completed("compare", "quickstart", "--algorithms", "local,fedprox,fedp") == [
        "local,fedprox,fedper"
    ]


def test_kinds_trackers_and_shells_are_completed() -> None:
    assert completed("list", "d") == ["datasets", "devices"]
    assert completed("track", "runs/one", "--to", "t") == ["tensorboard"]
    assert completed("run", "quickstart", "--track", "w") == ["wandb"]
    assert completed("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("fleet.0.device=la", ["fleet.0.device=laptop"]),
        ("fleet.3.availability=di", ["fleet.3.availability=diurnal"]),
        ("participation.pacing.name=t", ["participation.pacing.name=tiered"]),
        ("fleet.3.availability.name=di", ["fleet.3.availability.name=diurnal"]),
        ("models.a_label.name=ml", ["models.a_label.name=mlp"]),
        ("models.mlp.params.name=mlp", []),
        ("data.public.source=digi", ["data.public.source=digits"]),
        ("data.public.source.name=digi", ["data.public.source.name=digits"]),
        (
            "participation.pacing.params.staleness.name=poly",
            ["participation.pacing.params.staleness.name=polynomial"],
        ),
        ("data.partition=two_class_", ["data.partition=two_class_lognormal"]),
        ("run.rounds=1", []),
        ("run.r", ["run.rounds="]),
        (
            "run.",
            [
                f"run.{key}"
                for key in ("name=", "seed=", "until.", "rounds=", "save_models=", "trackers=", "checkpoint.")
            ],
        ),
        ("run.until.a", ["run.until.accuracy="]),
        ("ru", ["run."]),
        ("fl", ["fleet."]),
        ("faults.0.k", ["faults.0.kind=", "faults.0.keeps_state="]),
        ("fleet.", ["fleet.0."]),
        ("fleet.2.dev", ["fleet.2.device="]),
        ("models.", []),
        ("models.mine.p", ["models.mine.params."]),
        ("nothing.r", []),
        ("fleet.0.count=", []),
    ],
)
def test_values_that_name_a_plugin_are_completed(text: str, values: list[str]) -> None:
    assert completed("run", "quickstart", "--set", text) == values
    assert completed("compare", "quickstart", "--set", text) == values


@pytest.mark.parametrize("table", completion.KEYS)
def test_the_keys_are_those_of_the_schema(table: str) -> None:
    if table in ("cell", "edge", "faults", "fleet", "models"):
        pytest.skip("lists and labels have no keys of their own")
    kind: Any = Scenario
    for name in table.split("."):
        if name == "*":
            continue
        annotation = kind.model_fields[name].annotation
        inner = [one for one in _classes(annotation) if issubclass(one, Config)]
        (kind,) = inner
    assert completion.KEYS[table].split() == list(kind.model_fields)


def _classes(annotation: Any) -> list[type]:
    """Return the classes in a type, without those of the keys of a dictionary."""
    arguments = get_args(annotation)
    if not arguments:
        return [annotation] if isinstance(annotation, type) else []
    return [one for argument in arguments for one in _classes(argument)]


def test_every_table_is_completed() -> None:
    assert {name for name in completion.KEYS if "." not in name} == set(Scenario.model_fields) - {
        "algorithms"
    }


def test_several_values_of_a_path_are_completed() -> None:
    assert completed("compare", "quickstart", "--set", "fleet.0.device=low,la") == [
        "fleet.0.device=low,laptop"
    ]


@pytest.mark.parametrize(("path", "kind"), completion.CHOOSING.items())
def test_every_path_that_names_a_plugin_is_one_of_the_schema(path: str, kind: str) -> None:
    tables: dict[str, Any] = {
        "run": {"rounds": 1},
        "data": {"public": {"size": 10}},
        "participation": {"pacing": {"name": "immediate", "params": {"concurrency": 1}}},
        "fleet": [{"count": 1}],
    }
    override = f"{path.replace('fleet.*', 'fleet.0').replace('models.*', 'models.mine')}=nobody"
    with pytest.raises(ScenarioError) as found:
        load_scenario(tables, [override])
    names = ", ".join(plugin.name for plugin in available(FOLDERS[kind]))
    assert " is called 'nobody' — " in str(found.value)
    assert f"there are: {names[:40]}" in str(found.value)


@pytest.mark.parametrize(("name", "line"), [("bash", "&& compopt -o nospace"), ("zsh", 'compadd -U -S ""')])
def test_no_space_follows_a_path(name: str, line: str) -> None:
    shell = there(get_completion_class(name))
    assert line in shell(main, {}, "fedsim", "_FEDSIM_COMPLETE").source()


def test_fish_keeps_a_list_in_one_piece() -> None:
    assert get_completion_class("fish") is completion.Fish
    assert 'string split -m 1 ","' in completion.Fish(main, {}, "fedsim", "_FEDSIM_COMPLETE").source()


BASH = """
{script}
fedsim() {{ "{python}" -m fedsim "$@"; }}
env() {{ while [[ $1 == *=* ]]; do local -x "$1"; shift; done; "$@"; }}
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_fedsim_completion fedsim
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        ("fedsim list d", ["datasets", "devices"]),
        pytest.param("fedsim run quickstart --set run.r", ["run.rounds="], marks=pytest.mark.slow),
        pytest.param(
            "fedsim compare quickstart --algorithms local,fedpr", ["local,fedprox"], marks=pytest.mark.slow
        ),
        ("fedsim run quickstart --set fleet.0.device = la", ["laptop"]),  # as bash takes it apart
        pytest.param("fedsim run quickstart --algorithm = fedpr", ["fedprox"], marks=pytest.mark.slow),
    ],
)
def test_bash_completes(words: str, replies: list[str]) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "fedsim", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    text = BASH.format(script=script, python=sys.executable, words=words)
    command = ["bash", "--norc", "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == replies
