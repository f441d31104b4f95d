"""``fedsim list``."""

from __future__ import annotations

import json
from typing import Any

import click

from fedsim import toml_writer
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
        say(json.dumps([_document(info, details) for info in plugins], indent=2, ensure_ascii=False))
    elif details:
        for info in plugins:
            _describe(info)
    else:
        for group in sorted({info.kind for info in plugins}):
            rows = [(info.name, info.summary) for info in plugins if info.kind == group]
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


def _document(info: PluginInfo, details: bool) -> dict[str, Any]:
    parameters = {"parameters": typed_parameters(info.plugin.params())} if details else {}
    kind = {"kind": info.kind} if info.kind else {}
    return {"name": info.name, "summary": info.summary, **kind, **parameters}


def _documentation(field: dict[str, Any]) -> str:
    text = " ".join(field.get("description", "").split())
    choices = ", ".join(map(toml_writer.value, field.get("enum", ())))
    return f"{text} One of: {choices}." if choices else text


def _value(value: Any) -> str:
    return NONE if value is None else toml_writer.value(value)


def _describe(info: PluginInfo) -> None:
    say(f"{strong(info.name)}: {info.summary}")
    for name, default, documentation in parameters(info.plugin.params()):
        say(f"  {name} = {default}")
        if documentation:
            say(click.wrap_text(documentation, 96, initial_indent="      ", subsequent_indent="      "))
    say()
