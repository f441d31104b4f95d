"""The JSON schema of scenario files, for editors that complete and check TOML.

To what pydantic says of the schema's own tables it adds the plugins: their names, and for each name the
parameters that go with it. A dotted name is a private plugin, whose parameters the schema leaves open.
"""

from __future__ import annotations

from typing import Any

from fedsim.config import Config
from fedsim.plugin_choice import Choice, Kind, NamedChoice
from fedsim.plugins import available
from fedsim.scenario.choices import (
    ALGORITHM,
    DEVICE,
    EXECUTOR,
    MODEL,
    NetworkChoice,
)
from fedsim.scenario.schema import Scenario

Json = dict[str, Any]


def json_schema() -> Json:
    """Return the schema, with each key's description and default, and the parameters of every plugin."""
    schema = Scenario.model_json_schema(mode="validation")
    definitions: Json = schema["$defs"]
    _offer_each(definitions, "", definitions)
    for table in ("FleetGroup", "ServerEntry"):
        _name(definitions[table]["properties"]["device"], DEVICE)
    _offer_params(definitions["EngineConfig"], "executor", EXECUTOR, definitions)
    models, algorithms = schema["properties"]["models"], schema["properties"]["algorithms"]
    # A model's label is its name unless it says otherwise.
    model, unnamed = {"$ref": "#/$defs/ModelChoice"}, {"not": {"required": ["name"]}}
    models["properties"] = {
        name: {**model, "if": unnamed, "then": {"properties": {"params": reference}}}
        for name, reference in _parameters(MODEL, definitions).items()
    }
    models["additionalProperties"] = model
    algorithms["properties"] = _parameters(ALGORITHM, definitions)
    algorithms["patternProperties"] = {r"\.": {"type": "object"}}
    algorithms["additionalProperties"] = False
    # What the loader fills in need not be written.
    schema["required"] = ["run", "fleet"]
    definitions["ModelChoice"].pop("required", None)
    schema["title"] = "fedsim scenario"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **without_null(schema)}


def _offer_each(tables: Json, prefix: str, definitions: Json) -> None:
    """Complete those of some definitions that are choices."""
    choices: list[type[Choice]] = [NetworkChoice, *NamedChoice.__subclasses__()]
    for choice in choices:
        if choice.__name__ in tables:
            _offer(definitions[prefix + choice.__name__], choice, definitions)


def _offer(table: Json, choice: type[Choice], definitions: Json) -> None:
    """Add to a choice's table its names, and the parameters that go with each."""
    _offer_params(table, choice.KEY, choice.KIND, definitions)


def _offer_params(table: Json, key: str, kind: Kind[Any], definitions: Json) -> None:
    """Add to a table the names that a key of it may have, and the parameters that go with each."""
    _name(table["properties"][key], kind)
    default = table["properties"][key].get("default")
    params = {word: text for word, text in table["properties"]["params"].items() if word == "description"}
    table["properties"]["params"] = {**params, "type": "object"}
    table["allOf"] = []
    for name, reference in _parameters(kind, definitions).items():
        condition: Json = {"properties": {key: {"const": name}}}
        if name != default:
            condition["required"] = [key]
        table["allOf"].append({"if": condition, "then": {"properties": {"params": reference}}})


def _name(property_: Json, kind: Kind[Any]) -> None:
    property_.pop("type", None)
    described = [{"const": info.name, "description": info.summary} for info in available(kind.folder)]
    private = {"type": "string", "pattern": r"\.", "description": "A private plugin, by its dotted path."}
    property_["anyOf"] = [*described, private]


def _parameters(kind: Kind[Any], definitions: Json) -> Json:
    """Put the schemas of plugins' parameters among the definitions; return references to them by name."""
    references = {}
    for info in available(kind.folder):
        prefix = f"{kind.folder.removeprefix('fedsim.')}.{info.name}"
        references[info.name] = {"$ref": f"#/$defs/{prefix}"}
        if prefix not in definitions:
            own = info.plugin.params().model_json_schema(
                mode="validation", ref_template=f"#/$defs/{prefix}.{{model}}"
            )
            if info.plugin.params() is Config:
                own["description"] = "There is nothing to set."
            inner = own.pop("$defs", {})
            definitions |= {f"{prefix}.{name}": body for name, body in inner.items()}
            _offer_each(inner, f"{prefix}.", definitions)
            definitions[prefix] = {**own, "title": f"{kind.word} {info.name}"}
    return references


def without_null(node: Any) -> Any:
    """Return the schema as TOML means it: there is no null, a key without value is left out."""
    if isinstance(node, list):
        return [without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    clean = {key: without_null(item) for key, item in node.items() if (key, item) != ("default", None)}
    options = clean.get("anyOf", [])
    if {"type": "null"} in options:
        rest = [option for option in options if option != {"type": "null"}]
        del clean["anyOf"]
        clean = {**(rest[0] if len(rest) == 1 else {"anyOf": rest}), **clean}
    if clean.get("type") == "array" and "minLength" in clean:
        clean["minItems"] = clean.pop("minLength")
    return clean
