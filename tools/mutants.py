"""Plant small faults in fedsim, one at a time, and run the tests on each.

::

    python tools/mutants.py draw > tools/mutants.txt    # 300 faults, drawn with seed 0
    python tools/mutants.py test [--numbers 0-99]       # run the tests on each

A line of the list has a number, a file, a function, the text of a line and the text that replaces it. The
fault is caught if a test fails. The tests of the mirrored folder run first, then all that ``make test`` runs.
Faults are planted in a copy of the repository. The exit status of ``test`` is 1 if a fault was not caught, or
could not be planted because its line is gone.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools/mutants.txt"
NUM_MUTANTS = 300
TIMEOUT_S = 600.0
PYTEST = ("-m", "pytest", "-q", "-x", "--hypothesis-profile", "quick", "-p", "no:cacheprovider")

PAIRS = (
    *(("<", "<="), (">", ">="), ("==", "!="), ("is", "is not"), ("in", "not in")),
    *(("+", "-"), ("*", "/"), ("&", "|"), ("and", "or")),
)
SWAPS = {**dict(PAIRS), **{second: first for first, second in PAIRS}, "//": "/", "%": "*"}
"""Operators and what replaces them."""
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "len", "sorted": "list"}

Edit = tuple[int, int, int, str]
"""Number of a line, its first and last octet that are replaced, and the new text."""


@dataclass(frozen=True)
class Mutant:
    """A fault: a line of a file, and what replaces it."""

    file: str
    place: str  # the function or class around it
    line: str
    changed: str

    def planted(self, source: str) -> str:
        """Return the source with the fault; raise ValueError unless the line is there once."""
        lines = source.split("\n")
        if lines.count(self.line) != 1:
            raise ValueError(f"{self.file}: {lines.count(self.line)} lines {self.line.strip()!r}")
        lines[lines.index(self.line)] = self.changed
        return "\n".join(lines)


def sites() -> Iterator[Mutant]:
    """Yield every fault that can be planted."""
    for path in sorted((ROOT / "fedsim").rglob("*.py")):
        source = path.read_text("utf-8")
        lines = source.split("\n")
        for node, place in _nodes(ast.parse(source), "module"):
            for number, start, stop, text in _edits(node, lines):
                line = lines[number - 1]
                octets = line.encode()
                changed = (octets[:start] + text.encode() + octets[stop:]).decode()
                if lines.count(line) == 1:
                    yield Mutant(str(path.relative_to(ROOT)), place, line, changed)


def _nodes(node: ast.AST, place: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield what is executed, with the function or class around it."""
    children: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            children, place = node.body, node.name  # neither decorators nor annotations
        case ast.AnnAssign():
            children = [node.value]
        case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test):
            return
    yield node, place
    for child in children:
        if child is not None:
            yield from _nodes(child, place)


def _edits(node: Any, lines: Sequence[str]) -> Iterator[Edit]:
    """Yield the faults of a node: a line's number, octets of the line, and what replaces them."""

    def whole(part: Any, text: str) -> Edit:
        return part.lineno, part.col_offset, part.end_col_offset, text

    def swapped(operands: Sequence[Any]) -> Iterator[Edit]:
        """Yield the faults that replace an operator between two operands in one line."""
        for left, right in pairwise(operands):
            if left.end_lineno == right.lineno:
                between = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
                operator = between.strip(" ()")
                if operator in SWAPS:
                    start = left.end_col_offset + between.index(operator)
                    yield right.lineno, start, start + len(operator), SWAPS[operator]

    match node:
        case ast.If(test=test) if test.lineno == test.end_lineno:
            condition = lines[test.lineno - 1].encode()[test.col_offset : test.end_col_offset].decode()
            yield whole(test, f"not ({condition})")
        case ast.Compare():
            yield from swapped([node.left, *node.comparators])
        case ast.BinOp():
            yield from swapped([node.left, node.right])
        case ast.BoolOp():
            yield from swapped(node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()) if node.lineno == node.operand.lineno:
            yield node.lineno, node.col_offset, node.operand.col_offset, ""
        case ast.Constant(value=bool() as value):
            yield whole(node, str(not value))
        case ast.Constant(value=int() | float() as value):
            yield whole(node, repr(value + 1))
        case ast.Call(func=ast.Name(id=name) as function) if name in CALLS:
            yield whole(function, CALLS[name])


def to_line(number: int, mutant: Mutant) -> str:
    """Return a line of the list."""
    return "\t".join([str(number), mutant.file, mutant.place, mutant.line, mutant.changed])


def listed() -> dict[int, Mutant]:
    """Return the faults of the list."""
    rows = (line.split("\t") for line in LIST.read_text("utf-8").splitlines())
    return {int(number): Mutant(*fields) for number, *fields in rows}


def caught_by(mutant: Mutant, copy: Path) -> str:
    """Plant a fault in a copy of the repository; return which tests find it, empty if none does."""
    path = copy / mutant.file
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    options: Any = {"cwd": copy, "env": environment, "capture_output": True}
    source = path.read_text("utf-8")
    try:
        path.write_text(mutant.planted(source), "utf-8")
        for tests in (*_nearest_tests(copy, mutant.file), ""):
            command = [sys.executable, *PYTEST, *([tests] if tests else [])]
            try:
                done = subprocess.run(command, timeout=TIMEOUT_S, check=False, **options)
            except subprocess.TimeoutExpired:
                return f"{tests or 'all'}, by never ending"
            if done.returncode:
                return tests or "all"
        return ""
    finally:
        path.write_text(source, "utf-8")


def _nearest_tests(copy: Path, file: str) -> list[str]:
    """Return the test of the file and the tests of its folder, those that exist."""
    path = Path(file)
    folder = Path("tests", *path.parts[1:-1])
    own = folder / f"test_{path.name}"
    places = [own] if len(path.parts) == 2 else [own, folder]
    return [str(place) for place in places if (copy / place).exists()]


def test(numbers: Sequence[int], mutants: dict[int, Mutant]) -> list[int]:
    """Plant the faults, two at a time; return those that were not caught, or could not be planted."""
    with TemporaryDirectory() as folder:
        copies = [Path(folder) / name for name in ("one", "two")]
        for copy in copies:
            names = shutil.ignore_patterns(".git", ".venv", "runs", "build", "__pycache__", ".*_cache")
            shutil.copytree(ROOT, copy, ignore=names)

        def work(copy: Path, numbers: Sequence[int]) -> list[int]:
            survivors = []
            for number in numbers:
                try:
                    tests, otherwise = caught_by(mutants[number], copy), "NOT CAUGHT"
                except (ValueError, FileNotFoundError):
                    tests, otherwise = "", "NOT PLANTED: the line is gone"
                print(number, tests or otherwise, to_line(number, mutants[number]), sep="\t", flush=True)
                survivors += [] if tests else [number]
            return survivors

        with ThreadPoolExecutor(2) as threads:
            parts = threads.map(work, copies, (numbers[::2], numbers[1::2]))
        return sorted(number for part in parts for number in part)


def main() -> None:
    """Draw faults, or test those of the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("draw", "test"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--numbers", default=f"0-{NUM_MUTANTS - 1}", help="faults of the list, such as 0-99")
    arguments = parser.parse_args()
    if arguments.command == "draw":
        drawn = random.Random(arguments.seed).sample(list(sites()), NUM_MUTANTS)  # noqa: S311
        for number, mutant in enumerate(drawn):
            print(to_line(number, mutant))
        return
    first, _, last = arguments.numbers.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    survivors = test(numbers, listed())
    print(f"{len(numbers) - len(survivors)} of {len(numbers)} caught; not caught: {survivors}")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
