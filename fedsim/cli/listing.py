"""``fedsim list``."""

from __future__ import annotations

import json
from typing import Any

import click

from fedsim import toml
from fedsim.cli.console import say, strong, table
from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.config import Config
from fedsim.plugins import PluginInfo, available
from fedsim.report.text_table import TextTable

REQUIRED = "(required)"
NONE = "(none)"


def list_plugins(kind: str, details: bool, as_json: bool) -> None:
    """Print the plugins of a kind, with their parameters if so wished."""
    plugins = available(FOLDERS[kind])
    if as_json:
        say(json.dumps([_document(found, details) for found in plugins], indent=2, ensure_ascii=False))
    elif details:
        for found in plugins:
            _describe(found)
    else:
        for group in sorted({found.kind for found in plugins}):
            rows = [(found.name, found.summary) for found in plugins if found.kind == group]
            table(TextTable(("name", "description"), rows, title=group, text_columns=frozenset({0, 1})))


def parameters(config: type[Config]) -> list[tuple[str, str, str]]:
    """Return name, default as a scenario would write it, and documentation of each setting."""
    schema = config.model_json_schema()
    required = schema.get("required", [])
    return [
        (
            name,
            REQUIRED if name in required else _value(field.get("default")),
            _documentation(field),
        )
        for name, field in schema.get("properties", {}).items()
    ]


def typed_parameters(config: type[Config]) -> list[dict[str, Any]]:
    """Return each setting as a record for programs.

    A record has the setting's ``name``, its ``type`` (a list of JSON's names of types, such as
    ``["integer", "string"]``), its ``default`` (none where the setting is required, null where it may be left
    out and has no value then), and its ``description``.
    """
    schema = config.model_json_schema()
    definitions = schema.get("$defs", {})
    return [
        {
            "name": name,
            "type": sorted(_types(field, definitions) - {"null"}),
            **({"default": field["default"]} if "default" in field else {}),
            "description": _documentation(field),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _types(field: dict[str, Any], definitions: dict[str, Any]) -> set[str]:
    if "$ref" in field:
        return _types(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "type" in field:
        return {field["type"]}
    options = field.get("anyOf", field.get("oneOf", ()))
    return {kind for one in options for kind in _types(one, definitions)}


def _document(found: PluginInfo, details: bool) -> dict[str, Any]:
    parameters = {"parameters": typed_parameters(found.plugin.params())} if details else {}
    kind = {"kind": found.kind} if found.kind else {}
    return {"name": found.name, "summary": found.summary, **kind, **parameters}


def _documentation(field: dict[str, Any]) -> str:
    text = " ".join(field.get("description", "").split())
    choices = ", ".join(map(toml.value, field.get("enum", ())))
    return f"{text} One of: {choices}." if choices else text


def _value(value: Any) -> str:
    return NONE if value is None else toml.value(value)


def _describe(found: PluginInfo) -> None:
    say(f"{strong(found.name)}: {found.summary}")
    for name, default, documentation in parameters(found.plugin.params()):
        say(f"  {name} = {default}")
        if documentation:
            say(click.wrap_text(documentation, 96, initial_indent="      ", subsequent_indent="      "))
    say()
