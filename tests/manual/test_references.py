"""The manual's references have every key, parameter, command and name, each with words."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import command_reference
import manual_blocks
import project_files
import pytest
import scenario_reference

import fedsim
from fedsim.cli import main
from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.plugins import available
from fedsim.scenario import json_schema
from fedsim.studies.study_file import StudyConfig

ROOT = manual_blocks.DOCS.parent
KEY = re.compile(r"^```\{confval\} (.+)\n(?::no-contents-entry:\n)?\n\{\.kind\}\n(.+)\n\n(.*)\n```$", re.M)
reference = cache(scenario_reference.scenario)
plugins = cache(scenario_reference.plugins)


ANYTHING = {"study: grid"}
"""Keys whose values are those of other keys."""


def _described(markdown: str) -> dict[str, tuple[str, str]]:
    """Return by key what its value may be, and its description."""
    found = {name: (kind, words) for name, kind, words in KEY.findall(markdown)}
    assert len(found) == markdown.count("{confval}")  # each once
    return found


def _paths(table: Any, definitions: Any, path: str) -> Iterator[str]:
    """Yield the paths of all keys of a table that are not a plugin's."""
    for name, key in table.get("properties", {}).items():
        yield f"{path}{name}"
        for one in [key, key.get("items", {}), *key.get("anyOf", ())]:
            reference = one.get("$ref", "").removeprefix("#/$defs/")
            if reference and not re.search(r"Choice$|Source$|_", reference):
                inner = definitions[reference]
                law = inner["properties"].get("distribution", {}).get("const")
                yield from _paths(inner, definitions, f"{path}{name} ({law})." if law else f"{path}{name}.")


@pytest.fixture(scope="module")
def schema() -> Any:
    return json_schema()


@pytest.mark.parametrize(
    ("table", "definition"),
    [
        ("run", "RunConfig"),
        ("data", "DataConfig"),
        ("models.LABEL", "ModelChoice"),
        ("algorithm", "AlgorithmChoice"),
        ("training", "TrainingConfig"),
        ("fleet", "FleetGroup"),
        ("server", "ServerEntry"),
        ("network", "NetworkChoice"),
        ("participation", "ParticipationConfig"),
        ("engine", "EngineConfig"),
        ("evaluation", "EvaluationConfig"),
    ],
)
def test_every_key_of_a_scenario_is_there(schema: Any, table: str, definition: str) -> None:
    described = _described(reference())
    paths = set(_paths(schema["$defs"][definition], schema["$defs"], f"{table}."))
    # The second of two keys of one form leads to the section of the first; the server's load to the clients'.
    shared = re.compile(r"fleet\.down_trace\.|server\.load \(")
    assert {path for path in paths - set(described) if not shared.match(path)} == set()
    assert f"\n## {table}\n" in reference()


def test_every_key_has_a_kind_and_a_sentence() -> None:
    for markdown in (reference(), scenario_reference.study()):
        for name, (kind, words) in _described(markdown).items():
            assert kind, name
            assert "any value" not in kind or name in ANYTHING, name
            assert re.match(r"\S.{5,}[.\]\"]$", words), (name, words)


def test_kinds_say_unit_range_default_and_an_example() -> None:
    described = _described(reference())
    kinds = {name: kind.split(" · ") for name, (kind, _) in described.items()}
    assert kinds["training.lr"] == [
        "number above 0, at most 1,000,000",
        "default `0.05`",
        "example `lr = 0.3`",
    ]
    assert kinds["participation.client_timeout"] == [
        "a time: a number with a unit, from 1 ns to 10000 d",
        'default `"1 h"`',
        'example `client_timeout = "10 min"`',
    ]
    assert kinds["fleet.count"] == ["whole number from 1 to 10,000,000", "required", "example `count = 8`"]
    assert described["run.until.of"][0] == (
        '`"personal_mean"`, `"personal_worst_decile"` or `"global"` · default `"personal_mean"` · '
        'example `of = "global"`'
    )
    assert described["data.partition"][0].startswith("name of [partition](#plugins-partitions), or a table")
    assert described["data.global_test"][0] == (
        "number from 0, below 1 · default `0.0` · example `global_test = 0.15`"
    )


def test_every_key_of_a_study_is_there() -> None:
    described = _described(scenario_reference.study())
    schema = StudyConfig.model_json_schema(mode="validation")
    assert {f"study: {path}" for path in _paths(schema, schema["$defs"], "")} == set(described)


@pytest.mark.parametrize("kind", [kind for kind in FOLDERS if kind not in ("devices", "executors")])
def test_every_parameter_of_every_plugin_is_there(kind: str) -> None:
    markdown = plugins(kind)
    described = _described(markdown)
    for found in available(FOLDERS[kind]):
        assert f"\n## {found.name}\n" in markdown
        for name in found.plugin.Config.model_fields:
            (one,) = [key for key in described if key.endswith(f" {found.name}: {name}")]
            assert described[one][1].strip(), one


def test_devices_have_their_values() -> None:
    markdown = plugins("devices")
    assert all(f"\n## {found.name}\n" in markdown for found in available(FOLDERS["devices"]))
    assert '| `memory` | `"2 GB"` |' in markdown


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_readers_are_told_nothing_that_they_do_not_have(kind: str) -> None:
    assert scenario_reference.UNKNOWN.search(plugins(kind)) is None


def test_every_kind_has_a_page() -> None:
    pages = {
        page.rpartition("/")[2] for page in manual_blocks.pages() if page.startswith("reference/plugins/")
    }
    assert pages == set(FOLDERS)


def test_every_command_and_option_is_there() -> None:
    markdown = command_reference.commands()

    def leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from leaves(command, f"{path} {name}")
            else:
                yield f"{path} {name}", command

    for path, command in leaves(main, "fedsim"):
        section = markdown.partition(f"## {path}\n")[2].partition("\n## ")[0]
        assert section, path
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        assert section.count("```{option}") == len(options)
        assert all(f"{option.opts[0]}" in section for option in options)


def test_every_public_name_is_there() -> None:
    text = (manual_blocks.DOCS / "reference" / "python.md").read_text("utf-8")
    named = set(re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)", text, re.M))
    assert named == {*fedsim.__all__, "open"} - {"__version__"}


def test_links_between_files_of_the_project_become_links_between_pages() -> None:
    for file, shown in project_files.PAGES.items():
        assert (manual_blocks.DOCS / f"{shown}.md").is_file()
        links = re.findall(r"\]\(([^)]+)\)", project_files.page(file))
        assert all("://" in link or link.startswith("/") for link in links), links


DOCUMENTS = [
    *(ROOT / "CONTRIBUTING.md", ROOT / "DESIGN.md"),
    *sorted(manual_blocks.DOCS.glob("development/decisions/*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_sources_that_a_document_names_are_there(document: Path) -> None:
    sources = [
        path for folder in ("docs", "fedsim", "tests", "tools") for path in (ROOT / folder).rglob("*.py")
    ]
    named = re.findall(r"[`\s]([\w*/]+\.py)\b", document.read_text("utf-8"))
    assert [name for name in named if not any(path.match(name) for path in sources)] == []


def test_every_extra_is_there() -> None:
    text = (manual_blocks.DOCS / "first_run.md").read_text("utf-8").partition("### Extras")[2]
    rows = re.findall(r"^\| (`.+?) \|", text, re.M)
    pyproject = tomllib.loads((manual_blocks.DOCS.parent / "pyproject.toml").read_text("utf-8"))
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(pyproject["project"]["optional-dependencies"])
