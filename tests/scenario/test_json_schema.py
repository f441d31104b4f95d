import inspect
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.config import Config
from fedsim.plugin_choice import Kind
from fedsim.plugins import available
from fedsim.scenario import json_schema
from fedsim.scenario.choices import ALGORITHM, DATASET, MODEL, PARTITION

schema = cache(json_schema)


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(child)


def test_it_is_json_and_the_same_each_time() -> None:
    assert json.loads(json.dumps(schema())) == json_schema() == schema()


def test_every_reference_leads_somewhere() -> None:
    references = [node["$ref"] for node in nodes(schema()) if isinstance(node.get("$ref"), str)]
    assert references
    for reference in references:
        assert reference.removeprefix("#/$defs/") in schema()["$defs"]


def test_there_is_no_null_in_toml() -> None:
    assert not [node for node in nodes(schema()) if node.get("type") == "null"]


def test_only_rounds_and_a_fleet_are_required() -> None:
    assert schema()["required"] == ["run", "fleet"]
    either = [{"required": ["rounds"]}, {"required": ["until"]}]
    assert schema()["$defs"]["RunConfig"]["anyOf"] == either
    assert schema()["$defs"]["FleetGroup"]["required"] == ["count"]
    assert schema()["additionalProperties"] is False


@pytest.mark.parametrize(
    ("table", "kind", "folder"),
    [
        ("AlgorithmChoice", ALGORITHM, "algorithms"),
        ("DataConfig", DATASET, "data"),
        ("ModelChoice", MODEL, "models"),
        ("PartitionChoice", PARTITION, "data.partitions"),
        ("PublicSource", DATASET, "data"),
    ],
)
def test_every_plugin_has_its_parameters(table: str, kind: Kind[Any], folder: str) -> None:
    rules = schema()["$defs"][table]["allOf"]
    offered = {
        rule["if"]["properties"]["name"]["const"]: rule["then"]["properties"]["params"]["$ref"]
        for rule in rules
    }
    names = [found.name for found in available(kind.folder)]
    assert offered == {name: f"#/$defs/{folder}.{name}" for name in names}


def test_the_default_plugin_needs_no_name() -> None:
    rules = schema()["$defs"]["AlgorithmChoice"]["allOf"]
    assert [rule["if"]["properties"]["name"]["const"] for rule in rules if "required" not in rule["if"]] == [
        "fedavg"
    ]


def test_parameters_are_described() -> None:
    mu = schema()["$defs"]["algorithms.fedprox"]["properties"]["mu"]
    assert mu["minimum"] == 0
    assert mu["default"] == 0.01
    assert "proximal term" in mu["description"]
    assert schema()["properties"]["algorithms"]["properties"]["fedprox"] == {
        "$ref": "#/$defs/algorithms.fedprox"
    }


def test_every_key_is_described() -> None:
    keys = 0
    for node in nodes(schema()):
        properties = node.get("properties")
        if not isinstance(properties, dict):
            continue
        for key, body in properties.items():
            if not isinstance(body, dict) or body.keys() == {"const"}:  # a condition on a key
                continue
            place = body.get("$ref", "").removeprefix("#/$defs/")
            said = body.get("description") or schema()["$defs"].get(place, {}).get("description", "")
            assert said, key
            assert said != inspect.getdoc(Config), key
            keys += 1
    assert keys > 500


@pytest.mark.parametrize("folder", FOLDERS.values())
def test_every_parameter_of_every_plugin_is_described(folder: str) -> None:
    for found in available(folder):
        for node in nodes(found.plugin.Config.model_json_schema()):
            for key, body in node.get("properties", {}).items():
                assert "description" in body or "$ref" in body, (found.name, key)


def test_a_list_is_limited_in_items() -> None:
    hidden = schema()["$defs"]["models.mlp"]["properties"]["hidden"]
    assert hidden["minItems"] == 1
    assert "minLength" not in hidden


@pytest.mark.parametrize(
    ("table", "key"),
    [("ParticipationConfig", "selector"), ("ParticipationConfig", "workload"), ("DataConfig", "partition")],
)
def test_a_choice_may_be_its_name(table: str, key: str) -> None:
    assert {"type": "string"} in schema()["$defs"][table]["properties"][key]["anyOf"]


@pytest.mark.parametrize(("table", "key"), [("TrainingConfig", "schedule"), ("DataConfig", "augmentation")])
def test_several_choices_may_be_one_or_a_list(table: str, key: str) -> None:
    name, choice, several = schema()["$defs"][table]["properties"][key]["anyOf"]
    assert several == {"type": "array", "items": {"anyOf": [name, choice]}}
    assert name == {"type": "string"}
