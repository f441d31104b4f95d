"""The layers of DESIGN.md: who may import whom, and who may print. The checker is tested below."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import fedsim
from fedsim.cli.plugin_kinds import FOLDERS

DESIGN = (Path(__file__).parents[1] / "DESIGN.md").read_text()
# Layer by layer the places that the table names, such as `clock/` or `errors units rng`.
LAYERS = tuple(
    tuple(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", row))))
    for row in re.findall(r"^\| \d+ [^|]*\|([^|]*)\|", DESIGN, re.M)
)
# The package itself, which holds the version, is below all.
LAYER = {"": 0} | {place: number for number, places in enumerate(LAYERS) for place in places}
# Single files that make up one place together, as the files of a folder do.
TOGETHER = (LAYERS[0], LAYERS[-1])
# Importing fedsim asks MKL for its mode.
ALLOWED = {("fedsim", "fedsim.mkl_mode")}
PLUGIN_RULE = "a plugin is imported only by a plugin beside it that extends it"


@dataclass(frozen=True)
class Import:
    """One import: the module named, the names taken from it, and whether it is for a type checker only."""

    module: str
    names: tuple[str, ...]
    typing_only: bool


def offences(sources: Mapping[str, str]) -> list[str]:
    """Return what breaks the rules, for sources by dotted module name."""
    trees = {module: _parsed(source) for module, source in sorted(sources.items())}
    plugins = {module for module, tree in trees.items() if _offers_plugin(tree)} - set(FOLDERS.values())
    found, inside = list[str](), dict[str, list[str]]()
    for module, tree in trees.items():
        inside[module] = []
        for one in _imports(tree):
            if module == "fedsim" and one.typing_only:
                continue  # the names that it offers, which are imported when they are used
            for target in _targets(one, trees):
                found += _offence(module, target, tree, plugins)
                if _group(module) == _group(target) and not one.typing_only:
                    inside[module].append(target)
    return found + [f"cycle: {' -> '.join(cycle)}" for cycle in _cycles(inside)]


def printers(sources: Mapping[str, str]) -> list[str]:
    """Return the modules outside the command line that print or use rich."""
    guilty = []
    for module, source in sorted(sources.items()):
        tree = _parsed(source)
        prints = any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            for node in ast.walk(tree)
        )
        is_rich = any(one.module.partition(".")[0] == "rich" for one in _imports(tree, "rich"))
        if (prints or is_rich) and _place(module) != "cli":
            guilty.append(module)
    return guilty


def _offence(module: str, target: str, tree: ast.Module, plugins: set[str]) -> Iterator[str]:
    mine, its = _place(module), _place(target)
    arrow = f"{module} -> {target}"
    if mine not in LAYER or its not in LAYER:
        yield f"{arrow}: {mine if mine not in LAYER else its!r} has no place in the table"
    elif LAYER[its] > LAYER[mine]:
        yield f"{arrow}: from layer {LAYER[mine]} up to layer {LAYER[its]}"
    elif (module, target) in ALLOWED:
        return
    elif LAYER[its] == LAYER[mine] and _group(module) != _group(target):
        yield f"{arrow}: between two places of layer {LAYER[mine]}"
    elif target in plugins:
        siblings = module.rpartition(".")[0] == target.rpartition(".")[0]
        if not (siblings and module in plugins and _extends(tree, target)):
            yield f"{arrow}: {PLUGIN_RULE}"


def _place(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _group(module: str) -> str:
    place = _place(module)
    return next((places[0] for places in TOGETHER if place in places), place)


@cache  # sources are read by several tests
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def _imports(tree: ast.Module, package: str = "fedsim") -> list[Import]:
    """Return the imports of a package, wherever they stand; relative ones have no place."""
    found = list[Import]()
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == package:
                    found.append(Import(alias.name, (), id(node) in typing_only))
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            if node.level:
                found.append(Import("fedsim.(relative)", (), False))
            elif node.module and node.module.partition(".")[0] == package:
                found.append(Import(node.module, names, id(node) in typing_only))
    return found


def _targets(one: Import, modules: Mapping[str, object]) -> list[str]:
    """Return the modules that an import reaches: ``from a import b`` means ``a.b`` where that is a module."""
    below = [f"{one.module}.{name}" for name in one.names]
    targets = [name for name in below if name in modules]
    if len(targets) < len(below) or not below:
        targets.append(one.module)
    return targets


def _offers_plugin(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("PLUGIN", "PLUGINS")
        for node in tree.body
    )


def _extends(tree: ast.Module, target: str) -> bool:
    taken = {name for one in _imports(tree) if one.module == target for name in one.names}
    bases = [base for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases]
    names = {node.id for base in bases for node in ast.walk(base) if isinstance(node, ast.Name)}
    return bool(taken & names)


def _cycles(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """Return one cycle for each edge that closes one, found depth first."""
    cycles, done, path = list[list[str]](), set[str](), list[str]()

    def visit(module: str) -> None:
        if module in path:
            cycles.append([*path[path.index(module) :], module])
        elif module not in done:
            path.append(module)
            for target in graph.get(module, ()):
                visit(target)
            done.add(path.pop())

    for module in graph:
        visit(module)
    return cycles


# The tree itself


def _tree() -> dict[str, str]:
    root = Path(fedsim.__file__).parent
    sources = {}
    for path in root.rglob("*.py"):
        parts = ["fedsim", *path.relative_to(root).with_suffix("").parts]
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return sources


def test_every_file_keeps_to_its_layer() -> None:
    sources = _tree()
    assert len(sources) > 80
    assert {_place(module) for module in sources} - set(LAYER) == set()
    assert offences(sources) == []


def test_only_the_command_line_prints() -> None:
    assert printers(_tree()) == []


# The checker

FINE = {
    "fedsim": "if TYPE_CHECKING:\n    from fedsim.runtime.run import run",
    "fedsim.errors": "",
    "fedsim.units": "from fedsim.errors import UnitError",
    "fedsim.clock": "from fedsim.clock.loop import run\nfrom fedsim.clock.handles import Handle",
    "fedsim.clock.loop": "from fedsim.clock.handles import Handle\nimport fedsim.errors",
    "fedsim.clock.handles": "if TYPE_CHECKING:\n    from fedsim.clock.loop import run",
    "fedsim.wire": "from fedsim import __version__",
    "fedsim.algorithms": "",
    "fedsim.algorithms.base": "from fedsim import clock\nfrom fedsim.wire import Message",
    "fedsim.algorithms.fedavg": (
        "from fedsim.algorithms.base import A\nclass FedAvg(A[int]): ...\nPLUGIN = FedAvg"
    ),
    "fedsim.algorithms.fedprox": (
        "from fedsim.algorithms.fedavg import FedAvg\nclass FedProx(FedAvg): ...\nPLUGIN = FedProx"
    ),
    "fedsim.runtime": "",
    "fedsim.runtime.run": "def run():\n    from fedsim.algorithms.base import A",
    "fedsim.cli": "from fedsim.runtime.run import run\nimport rich.table\nprint(1)",
    "fedsim.__main__": "from fedsim.cli import main",
}


def test_what_is_fine_passes() -> None:
    assert offences(FINE) == []
    assert printers(FINE) == []


UPWARDS = "runtime.run: from layer 1 up to layer 7"
RELATIVE = "(relative): '(relative)' has no place in the table"
BREACHES = [
    ("wire", "import fedsim.runtime.run", UPWARDS),
    ("wire", "def f():\n    if True:\n        from fedsim.runtime import run", UPWARDS),
    ("wire", "import typing\nif typing.TYPE_CHECKING:\n    from fedsim.runtime.run import Result", UPWARDS),
    ("wire", "import fedsim.clock.loop", "clock.loop: between two places of layer 1"),
    ("wire", "from fedsim import errors, clock", "clock: between two places of layer 1"),
    ("wire", "from . import limits", RELATIVE),
    ("wire", "from ..clock import loop", RELATIVE),
    ("units", "from fedsim import clock", "clock: from layer 0 up to layer 1"),
    ("extras", "import fedsim.errors", "errors: 'extras' has no place in the table"),
    ("algorithms", "from fedsim.algorithms import fedavg", f"algorithms.fedavg: {PLUGIN_RULE}"),
]
EXTENDING = "from fedsim.algorithms.fedavg import {}\nclass Mine({}): ...\n{}"
NOT_EXTENDING = [
    ("runtime.run", EXTENDING.format("FedAvg", "FedAvg", "PLUGIN = Mine")),
    ("algorithms.shared", EXTENDING.format("FedAvg", "FedAvg", "")),
    ("algorithms.fedprox", EXTENDING.format("unlike", "", "PLUGIN = Mine")),
]


@pytest.mark.parametrize(
    ("module", "source", "offence"),
    [
        *(
            (f"fedsim.{module}", source, f"fedsim.{module} -> fedsim.{end}")
            for module, source, end in BREACHES
        ),
        *(
            (f"fedsim.{module}", source, f"fedsim.{module} -> fedsim.algorithms.fedavg: {PLUGIN_RULE}")
            for module, source in NOT_EXTENDING
        ),
        ("fedsim.units", "import fedsim", "fedsim.units -> fedsim: between two places of layer 0"),
        ("fedsim", "import fedsim.cli", "fedsim -> fedsim.cli: from layer 0 up to layer 14"),
        (
            "fedsim.clock.handles",
            "import fedsim.clock.loop",
            "cycle: fedsim.clock.loop -> fedsim.clock.handles -> fedsim.clock.loop",
        ),
        (
            "fedsim.clock.handles",
            "def f():\n    from fedsim.clock import run",
            "cycle: fedsim.clock -> fedsim.clock.loop -> fedsim.clock.handles -> fedsim.clock",
        ),
        ("fedsim.errors", "import fedsim.units", "cycle: fedsim.errors -> fedsim.units -> fedsim.errors"),
        ("fedsim.errors", "import fedsim.errors", "cycle: fedsim.errors -> fedsim.errors"),
    ],
)
def test_what_breaks_a_rule_is_found(module: str, source: str, offence: str) -> None:
    assert offence in offences({**FINE, module: source})


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    print(1)",
        "import rich",
        "from rich.table import Table",
        "def f():\n    import rich.text",
    ],
)
def test_a_printer_is_found(source: str) -> None:
    assert printers({**FINE, "fedsim.report.number_format": source}) == ["fedsim.report.number_format"]
    assert printers({**FINE, "fedsim.cli.text": source}) == []


def test_what_only_looks_like_printing_is_not() -> None:
    source = "table.print()\nblueprint(1)\nimport enrichment\n'print(1)'"
    assert printers({"fedsim.report.number_format": source}) == []
