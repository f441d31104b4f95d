"""The reference of scenario files, study files and plugins, in Markdown, from the schemas that check them.

The manual is built with it (``docs/conf.py``). To see a part of it, run from the root of the repository::

    python tools/scenario_reference.py scenario
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import algorithms_page

from fedsim import toml_writer
from fedsim.algorithms.base import Algorithm
from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.plugins import PluginInfo, available
from fedsim.scenario.json_schema import json_schema, without_null
from fedsim.studies.study_file import StudyConfig

Json = Mapping[str, Any]

SCENARIOS = Path(__file__).parents[1] / "scenarios"
DISTRIBUTION = re.compile(r"(LogNormal|Uniform|Normal|Choice)_[a-z_]+")
"""Definitions of distributions: the same four for each dimension."""
CHOICE = re.compile(r"(.*\.)?(\w+Choice|PublicSource)")
"""Definitions of tables that choose a plugin, which may mostly be written as the plugin's name alone."""
ROLE = re.compile(r":(class|func|data|mod|meth):`")
CODE_OR_TAG = re.compile(r"(`+).*?\1|<", re.S)
UNKNOWN = re.compile(r"specification|D-\d{3}-\d", re.IGNORECASE)
"""What readers of the manual do not have."""


def scenario() -> str:
    """Return every key of a scenario file, table by table."""
    schema = json_schema()
    reference = _Reference(schema["$defs"])
    sections = []
    for name, property_ in schema["properties"].items():
        title = {"models": "models.LABEL", "algorithms": "algorithms.NAME"}.get(name, name)
        sections += reference.table(title, property_)
    return "\n".join([*sections, *reference.distributions()])


def study() -> str:
    """Return every key of a study file, table by table."""
    schema = without_null(StudyConfig.model_json_schema(mode="validation"))
    return "\n".join(_Reference(schema["$defs"], "study: ").table("", schema))


def plugins(kind: str) -> str:
    """Return the plugins of a kind (one of ``fedsim list``), their docstrings and their parameters."""
    definitions = json_schema()["$defs"]
    lines: list[str] = [f"(plugins-{kind})=", ""]
    for found in available(FOLDERS[kind]):
        lines += [f"## {found.name}", "", *_docstring(found), ""]
        if kind == "devices":
            lines += _values(found)
        elif (schema := definitions.get(f"{found.family.removeprefix('fedsim.')}.{found.name}")) is not None:
            reference = _Reference(definitions, f"{_word(kind)} {found.name}: ")
            lines += reference.keys(schema, "") if schema["properties"] else ["It has no parameters.", ""]
            lines += reference.pending("###", described=False)
    return "\n".join(lines)


def _docstring(found: PluginInfo) -> list[str]:
    """Return a plugin's docstring as Markdown; of algorithms only the head, and the paper."""
    if issubclass(found.plugin, Algorithm):
        return [algorithms_page.says(found.plugin)]
    lines = []
    for paragraph in algorithms_page.docstring(found.plugin).split("\n\n"):
        if UNKNOWN.search(paragraph):
            continue
        if paragraph.startswith("    "):
            lines += ["```text", inspect.cleandoc(paragraph), "```", ""]
        else:
            lines += [_markdown(ROLE.sub("`", re.sub("::$", ":", paragraph))), ""]
    return lines


def _values(found: PluginInfo) -> list[str]:
    """Return what devices of a class have."""
    fields = found.plugin.Config.model_json_schema(mode="validation")["properties"]
    defaults = {name: one["default"] for name, one in fields.items() if one.get("default") is not None}
    rows = [f"| `{name}` | `{toml_writer.value(value)}` |" for name, value in defaults.items()]
    return ["| quantity | value |", "|---|---|", *rows, ""] if rows else []


@dataclass
class _Reference:
    """Writes the keys of tables, and remembers which tables they lead to."""

    definitions: Json
    prefix: str = ""
    titles: dict[str, str] = field(default_factory=dict)
    found: list[tuple[str, Json]] = field(default_factory=list)

    def table(self, title: str, property_: Json) -> list[str]:
        """Return the section of a table, and those of the tables in it."""
        definition = self._table_of(property_)
        path = title.partition(".")[0]
        lines = [*self.heading("##", title), _line(property_.get("description", "")), ""] if title else []
        if path != "algorithms":  # its keys are the parameters of all algorithms
            lines += self.keys(definition, f"{title}." if title else "")
        return lines + self.pending("###" if title else "##")

    def heading(self, level: str, title: str) -> list[str]:
        """Return a heading, and the label by which other keys link to it."""
        return [f"({self._label(title)})=", "", f"{level} {title}", ""]

    def pending(self, level: str, *, described: bool = True) -> list[str]:
        """Return the sections of the tables that keys have led to, each once."""
        lines = []
        while self.found:
            title, table = self.found.pop(0)
            lines += self.heading(level, title)
            lines += [_line(table.get("description", "")), ""] if described else []
            lines += self.keys(table, f"{title}.")
        return lines

    def keys(self, table: Json, path: str) -> list[str]:
        """Return the keys of a table; ``path`` is that of the table, with a dot at its end."""
        lines = []
        for name, property_ in table.get("properties", {}).items():
            self._follow(f"{path}{name}", property_)
            lines += [f"```{{confval}} {self.prefix}{path}{name}"]
            lines += [*([":no-contents-entry:"] if self.prefix else []), "", "{.kind}"]
            lines += [" · ".join(self._facts(table, path, name)), ""]
            lines += [_line(property_.get("description", "")), "```", ""]
        return lines

    def _facts(self, table: Json, path: str, name: str) -> Iterator[str]:
        """Say what a value may be, what it is if left out, and give an example where that says no more."""
        property_ = table["properties"][name]
        yield self.words(property_)
        shown = None
        if name in table.get("required", ()):
            yield "required"
        elif property_.get("default") not in (None, {}, []) and "$ref" not in property_:
            shown = toml_writer.value(property_["default"])
            yield f"default `{shown}`"
        example = _written_in_examples().get(f"{self.prefix}{path}{name}")
        example = example or _made_up(property_, self.definitions)
        if example not in (None, shown):
            yield f"example `{name} = {example}`"

    def words(self, property_: Json) -> str:
        """Say what a value may be: its kind and its range."""
        if "enum" in property_:
            return _either([f"`{toml_writer.value(one)}`" for one in property_["enum"]])
        if "const" in property_:
            return f"`{toml_writer.value(property_['const'])}`"
        if (unit := property_.get("$comment")) is not None:
            return str(unit)
        if "$ref" in property_:
            return self._words_of_table(_name_of(property_))
        if options := property_.get("anyOf", property_.get("oneOf")):
            return self._words_of_options(options)
        match property_.get("type"):
            case "array":
                return self._words_of_list(property_)
            case "object":
                values = property_.get("additionalProperties")
                return f"table, each value: {self.words(values)}" if isinstance(values, dict) else "table"
            case "boolean":
                return "`true` or `false`"
            case "integer" | "number" as kind:
                return f"{'whole number' if kind == 'integer' else 'number'}{_range(property_)}"
            case "string":
                return "text"
        return "any value"

    def distributions(self) -> list[str]:
        """Return the section of distributions, which are the same for each dimension."""
        words = "A value that may be a distribution is drawn for each client."
        lines = ["(distributions)=", "", "## Distributions", "", words, ""]
        shown: dict[str, Json] = {}
        for name, definition in self.definitions.items():
            if match := DISTRIBUTION.fullmatch(name):
                shown.setdefault(match[1], definition)
        for definition in shown.values():
            law = definition["properties"]["distribution"]["const"]
            lines += [f"### {law}", "", _line(definition.get("description", "")), ""]
            lines += self.keys(_of_any_dimension(definition), f"{law}.")
        return lines

    def _words_of_table(self, name: str) -> str:
        if DISTRIBUTION.fullmatch(name):
            return "[distribution](#distributions)"
        if CHOICE.fullmatch(name):
            key = self.definitions[name]["properties"].get("name", {})
            return f"{self.words(key)}, or a table of `name` and `params`"
        title = self.titles[name]
        return f"table, see [{title}](#{self._label(title)})"

    def _label(self, title: str) -> str:
        return re.sub(r"\W+", "-", f"table {self.prefix}{title}").lower()

    def _words_of_options(self, options: list[Json]) -> str:
        if any("const" in one and "description" in one for one in options):
            return _of_kind(frozenset(one["const"] for one in options if "const" in one))
        # A name alone is in the words of the table that it stands for.
        tables = [one for one in options if CHOICE.fullmatch(_name_of(one))]
        rest = [one for one in options if not (tables and one.get("type") == "string")]
        return ", or ".join(dict.fromkeys(self.words(one) for one in rest))

    def _words_of_list(self, property_: Json) -> str:
        if "prefixItems" in property_:
            kinds = dict.fromkeys(self.words(one) for one in property_["prefixItems"])
            return f"list of {len(property_['prefixItems'])}: {', '.join(kinds)}"
        least, most = property_.get("minItems"), property_.get("maxItems")
        ends = f"{f'at least {least}' if least else ''}{' and ' if least and most else ''}"
        ends += f"at most {most}" if most else ""
        return f"list{f' of {ends}' if ends else ''}, each: {self.words(property_.get('items', {}))}"

    def _follow(self, path: str, property_: Json) -> None:
        for name in _references(property_):
            definition = self.definitions[name]
            is_plain_choice = CHOICE.fullmatch(name) and {*definition["properties"]} <= {"name", "params"}
            if name not in self.titles and not DISTRIBUTION.fullmatch(name) and not is_plain_choice:
                law = definition["properties"].get("distribution", {}).get("const")
                self.titles[name] = f"{path} ({law})" if law else path
                self.found.append((self.titles[name], definition))

    def _table_of(self, property_: Json) -> Json:
        if "$ref" in property_:
            definition: Json = self.definitions[_name_of(property_)]
            return definition
        inner = property_.get("items") or property_.get("additionalProperties")
        return self._table_of(inner) if isinstance(inner, dict) and inner else property_


def _made_up(property_: Json, definitions: Json) -> Any:
    """Return a value that a key may have, as TOML; None for a table, and where nothing can be made up."""
    default = property_.get("default")
    for example in property_.get("examples", ()):
        # An example of a key is written as in a file, one of a quantity is its text.
        return example if str(example)[0] in '["{' else toml_writer.value(example)
    if property_.get("type") == "boolean":
        return toml_writer.value(not default)
    if "enum" in property_:
        return toml_writer.value(next(one for one in property_["enum"] if one != default))
    if default not in (None, [], {}) and "$ref" not in property_:
        return toml_writer.value(default)
    if "const" in property_:
        return toml_writer.value(property_["const"])
    if "$ref" in property_:
        names = definitions[_name_of(property_)].get("properties", {}).get("name", {})
        return _made_up(names, definitions) if CHOICE.fullmatch(_name_of(property_)) else None
    if options := property_.get("anyOf", property_.get("oneOf")):
        made = (_made_up(one, definitions) for one in options if one != {"type": "string"})
        return next((one for one in made if one is not None), None)
    match property_.get("type"):
        case "integer" | "number":
            return toml_writer.value(max(property_.get("minimum", 0), min(1, property_.get("maximum", 1))))
        case "array" if (item := _made_up(property_.get("items", {}), definitions)) is not None:
            return f"[{item}]"
    return None


def _references(property_: Json) -> Iterator[str]:
    """Return the names of the definitions that a key leads to."""
    if "$ref" in property_:
        yield _name_of(property_)
    for option in property_.get("anyOf", property_.get("oneOf", ())):
        yield from _references(option)
    for inner in (property_.get("items"), property_.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from _references(inner)


def _name_of(property_: Json) -> str:
    return str(property_.get("$ref", "")).removeprefix("#/$defs/")


def _word(kind: str) -> str:
    words = {"datasets": "data set", "availability": "availability model", "networks": "network model"}
    return words.get(kind, kind if kind == "staleness" else kind.removesuffix("s"))


@cache
def _of_kind(names: frozenset[str]) -> str:
    """Return a link to the plugins that have these names."""
    for kind, folder in FOLDERS.items():
        if names == {found.name for found in available(folder)}:
            return f"name of [{_word(kind)}](#plugins-{kind})"
    raise LookupError(names)


def _range(property_: Json) -> str:
    bounds = [
        ("from", "minimum"),
        ("above", "exclusiveMinimum"),
        ("to" if "minimum" in property_ else "at most", "maximum"),
        ("below", "exclusiveMaximum"),
    ]
    words = [f"{word} {_number(property_[key])}" for word, key in bounds if key in property_]
    joined = " ".join(words) if "minimum" in property_ and "maximum" in property_ else ", ".join(words)
    return f" {joined}" if joined else ""


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _markdown(text: str) -> str:
    """Return a description as Markdown: what looks like HTML is text, but for code, where nothing does."""
    return CODE_OR_TAG.sub(lambda found: found[0].replace("<", "&lt;", not found[1]), text)


def _line(text: str) -> str:
    """Return a description as one line of Markdown."""
    return _markdown(" ".join(text.split()))


def _of_any_dimension(node: Any) -> Any:
    """Return a distribution of quantities as one of whatever the key is that has it."""
    if not isinstance(node, dict):
        return [_of_any_dimension(one) for one in node] if isinstance(node, list) else node
    if "$comment" in node:
        return {"$comment": "as the key has it", "description": node.get("description", "")}
    dropped = {"default"} if "const" in node else set()
    return {key: _of_any_dimension(one) for key, one in node.items() if key not in dropped}


@cache
def _written_in_examples() -> Mapping[str, str]:
    """Return what the example scenarios have at each path, and for each parameter of a plugin, as TOML."""
    found: dict[str, str] = {}
    order = sorted(
        SCENARIOS.rglob("*.toml"), key=lambda file: (file.stem != "quickstart", file.parent, file.stem)
    )
    for file in order:
        prefix = "study: " if file.parent.name == "studies" else ""
        for path, value in _leaves(tomllib.loads(file.read_text("utf-8")), ""):
            found.setdefault(prefix + path, toml_writer.value(value))
    return found


def _leaves(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        yield f"{path}{name}", value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield from _leaves(one, "models.LABEL." if path == "models." else f"{path}{name}.")
                yield from _params(one, path, name)


def _params(table: Mapping[str, Any], path: str, name: str) -> Iterator[tuple[str, Any]]:
    """Return the parameters of a plugin that a table chooses, by the plugin: ``pacing buffered: buffer``."""
    word = {"models.": "model", "": {"data": "data set", "network": "network model"}.get(name, name)}.get(
        path, name
    )
    word = {"availability": "availability model", "source": "data set"}.get(word, word)
    chosen = name if path == "algorithms." else table.get("name", table.get("model", name))
    params = table if path == "algorithms." else table.get("params", {})
    for key, value in params.items():
        yield f"{'algorithm' if path == 'algorithms.' else word} {chosen}: {key}", value


if __name__ == "__main__":
    parts: dict[str, Callable[..., str]] = {"scenario": scenario, "study": study, "plugins": plugins}
    print(parts[sys.argv[1]](*sys.argv[2:]))
