"""constraints.txt pins all that an installation of fedsim brings along."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = (Path(__file__).parents[1] / "constraints.txt").read_text()


def test_every_dependency_is_pinned() -> None:
    pinned = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", CONSTRAINTS, re.M)}
    extras = metadata("fedsim").get_all("Provides-Extra") or []
    waiting, known = [("fedsim", extra) for extra in extras], set[tuple[str, str]]()
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
    assert {name for name, _ in known} - pinned - {"fedsim"} == set()
