"""Write ALGORITHMS.md: what each algorithm sends, keeps and needs, from its class.

Run from the root of the repository, after an algorithm was added or has changed::

    python tools/algorithms_page.py
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from fedsim.algorithms.base import About, Algorithm, Kind
from fedsim.plugins import available
from fedsim.report.text_table import TextTable, to_markdown

PAGE = Path("ALGORITHMS.md")
HEAD = """# The algorithms

This page is written from the classes by `python tools/algorithms_page.py`. `fedsim list algorithms --details`
has the parameters of each.

Payloads are bytes for one client in a round, at the default parameters and without the frames' envelopes.
S is a model of the client's architecture (4 for each parameter and running statistic, 8 for each counter), d
its parameters, N the classes, p the public samples of a round, n the client's training samples. *Mixed* says
whether clients may have different architectures, *personal* whether they end with models of their own,
*asynchronous* whether stale replies can be merged, as asynchronous pacings do, *robust* whether `aggregation`
may replace its mean; the reasons why not are below the tables."""
PAPER = re.compile(r"[A-Z][^.:]*(et al\.)?: .*?(\(arXiv \d{4}\.\d{5}\)|(19|20)\d\d(?! \(arXiv))")
"""Authors, title, venue and year."""
HEADINGS = (
    "algorithm",
    "down",
    "up",
    "kept by a client",
    "kept by the server",
    "mixed",
    "public set",
    "personal",
    "asynchronous",
    "robust",
)


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    plugins = {found.name: found.plugin for found in available("fedsim.algorithms")}
    algorithms = {name: cls for name, cls in plugins.items() if issubclass(cls, Algorithm)}
    for kind in get_args(Kind):
        of_kind = {name: cls for name, cls in algorithms.items() if cls.about and cls.about.kind == kind}
        rows = [_cells(name, cls, cls.about) for name, cls in of_kind.items() if cls.about is not None]
        table = TextTable(HEADINGS, rows, text_columns=frozenset(range(len(HEADINGS))))
        yield from ("", f"## {kind.capitalize()}", "", to_markdown(table))
        yield from (f"- {says(cls)}" for cls in of_kind.values())
    yield from ("", "## Why some can have no other aggregation", "")
    reasons: dict[str, list[str]] = {}
    for name, cls in algorithms.items():
        if cls.own_aggregation is not None:
            reasons.setdefault(cls.own_aggregation, []).append(f"`{name}`")
    yield from (f"- {why}: {', '.join(names)}" for why, names in reasons.items())


def _cells(name: str, cls: type[Algorithm[Any, Any, Any]], about: About) -> list[str]:
    is_stale, is_robust = cls.discounted is not None, cls.own_aggregation is None
    flags = (cls.mixed_architectures, cls.needs_public, about.personal, is_stale, is_robust)
    words = ["yes" if flag else "no" for flag in flags]
    return [f"`{name}`", about.down, about.up, about.client, about.server, *words]


def docstring(plugin: type[Any]) -> str:
    """Return what describes a plugin: its module's docstring, or its own where a module offers several."""
    module = sys.modules[plugin.__module__]
    return inspect.getdoc(module if hasattr(module, "PLUGIN") else plugin) or ""


def says(cls: type[Algorithm[Any, Any, Any]]) -> str:
    """Return the first line of an algorithm's docstring, and the paper that it cites, if any."""
    first, *others = docstring(cls).split("\n\n")
    papers = (PAPER.match(" ".join(paragraph.split())) for paragraph in others)
    return " ".join([first, *(f"{paper[0]}." for paper in papers if paper)])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
