import json
import re
from typing import Literal

import pytest
from pydantic import Field

from fedsim.cli.listing import parameters, typed_parameters
from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.config import Config
from fedsim.plugins import available
from tests.cli.conftest import Call


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_every_plugin_is_listed_with_its_summary(call: Call, kind: str) -> None:
    result = call("list", kind)
    assert result.exit_code == 0
    tables = re.findall(r"^name +description\n-+ +-+\n((?:.+\n)+)", result.stdout, re.M)
    lines = [line for table in tables for line in table.splitlines()]
    assert sorted(line.split()[0] for line in lines) == [found.name for found in available(FOLDERS[kind])]
    assert all(len(line.split()) > 2 for line in lines)


def test_a_kind_may_be_named_in_the_singular(call: Call) -> None:
    assert call("list", "pacing").stdout == call("list", "pacings").stdout
    assert call("list", "network").exit_code == 0
    assert call("list", "pace").exit_code == 2


def test_algorithms_are_listed_by_kind(call: Call) -> None:
    listed = call("list", "algorithms").stdout
    kinds = ["distillation", "one global model", "personal models", "reference"]
    places = [listed.index(f"{kind}\nname") for kind in kinds]
    assert places == sorted(places)
    assert places[1] < listed.index("\nfedavg ") < places[2]


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_details_give_every_parameter_with_words(call: Call, kind: str) -> None:
    result = call("list", kind, "--details")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    parameters = [i for i, line in enumerate(lines) if line.startswith("  ") and line[2] != " "]
    assert len(parameters) == sum(
        len(found.plugin.params().model_fields) for found in available(FOLDERS[kind])
    )
    assert all(lines[i + 1].startswith("      ") for i in parameters)


@pytest.mark.parametrize("kind", list(FOLDERS))
def test_programs_are_told_the_same(call: Call, kind: str) -> None:
    short = json.loads(call("list", kind, "--json").stdout)
    kinds = [{"kind": one.kind} if one.kind else {} for one in available(FOLDERS[kind])]
    assert short == [
        {"name": one.name, "summary": one.summary, **more}
        for one, more in zip(available(FOLDERS[kind]), kinds, strict=True)
    ]
    assert all(bool(more) == (kind in ("algorithms", "codecs")) for more in kinds)
    for plugin, found in zip(
        json.loads(call("list", kind, "--json", "--details").stdout), available(FOLDERS[kind]), strict=True
    ):
        assert plugin.keys() - {"kind"} == {"name", "summary", "parameters"}
        for told, (name, _, words) in zip(
            plugin["parameters"], parameters(found.plugin.params()), strict=True
        ):
            assert (told["name"], told["description"]) == (name, words)
            assert set(told["type"]) <= {"integer", "number", "string", "boolean", "array", "object"}
            assert told["type"]


def test_an_unknown_kind_is_a_mistake(call: Call) -> None:
    result = call("list", "unicorns")
    assert result.exit_code == 2
    assert "algorithms" in result.stderr


class Base(Config):
    size: int = 1
    """How much."""


class Settings(Base):
    size: int = 2
    mode: Literal["a", "b"] = "a"
    """How."""
    path: str = Field()
    """Where."""
    shares: tuple[float, ...] = (0.5, 0.5)
    limit: int | None = None


def test_parameters_are_told_as_a_scenario_writes_them() -> None:
    assert parameters(Settings) == [
        ("size", "2", "How much."),
        ("mode", '"a"', 'How. One of: "a", "b".'),
        ("path", "(required)", "Where."),
        ("shares", "[0.5, 0.5]", ""),
        ("limit", "(none)", ""),
    ]


def test_parameters_for_programs_have_types_and_plain_defaults() -> None:
    assert typed_parameters(Settings) == [
        {"name": "size", "type": ["integer"], "default": 2, "description": "How much."},
        {"name": "mode", "type": ["string"], "default": "a", "description": 'How. One of: "a", "b".'},
        {"name": "path", "type": ["string"], "description": "Where."},
        {"name": "shares", "type": ["array"], "default": [0.5, 0.5], "description": ""},
        {"name": "limit", "type": ["integer"], "default": None, "description": ""},
    ]


def test_columns_are_listed_with_unit_and_description(call: Call) -> None:
    listed = call("list", "columns").stdout
    assert re.search(r"^messages\.parquet\nname +unit +description\n", listed, re.M)
    assert re.search(r"^sent_at_s +s +Virtual time at which the frame was put on the link\.$", listed, re.M)
    assert "int64" not in listed
    assert re.search(
        r"^bytes +int64 +B +Length of the frame\.$", call("list", "columns", "--details").stdout, re.M
    )


@pytest.mark.parametrize("details", [False, True])
def test_programs_are_told_of_all_columns(call: Call, details: bool) -> None:
    tables = json.loads(call("list", "columns", "--json", *["--details"] * details).stdout)
    assert [one["file"] for one in tables] == [
        *("rounds.parquet", "clients.parquet", "client_classes.parquet", "evaluations.parquet"),
        *("dispatches.parquet", "messages.parquet", "classes.parquet", "confusion.parquet"),
        "edge_messages.parquet",
        *("comparison.csv",),
        *("study.parquet", "answers.csv", "front.csv", "tuning.csv"),
    ]
    wanted = {"name", "unit", "description"} | ({"type"} if details else set())
    assert all(column.keys() == wanted for one in tables for column in one["columns"])
