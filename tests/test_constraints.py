"""constraints.txt pins all that an installation of fedsim brings along."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_dependency_is_pinned() -> None:
    pinned = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", CONSTRAINTS, re.M)}
    extras = PROJECT["optional-dependencies"].values()
    asked = [Requirement(text) for text in chain(PROJECT["dependencies"], *extras)]
    waiting = [(canonicalize_name(one.name), extra) for one in asked for extra in ("", *one.extras)]
    known = {(PROJECT["name"], extra) for extra in ("", *PROJECT["optional-dependencies"])}
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in known:
            continue
        known.add((name, extra))
        try:
            wanted = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue  # for another platform or build, such as what a CUDA build of torch needs
        for one in wanted:
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(one.name), extra_) for extra_ in ("", *one.extras)]
    assert {name for name, _ in known} - pinned - {PROJECT["name"]} == set()
