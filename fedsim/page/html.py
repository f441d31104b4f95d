"""A page as one HTML file that needs no network, server or other file.

Scripts and styles are files of this package. Data are JSON in an element of their own, and reach the page as
text only (``textContent``). The Content-Security-Policy allows these scripts and styles by their hashes, and
no request.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from fedsim import __version__
from fedsim.figures import palette
from fedsim.page.page_content import Page, page_json

SCRIPTS = (
    *("dom", "format", "ticks", "theme", "legend", "table", "plane"),
    *("line_chart", "point_chart", "bar_chart", "heat_chart", "gantt_chart"),
    *("figure", "page"),
)
"""Files of ``scripts/`` in the order of reading; functions may call those of any other."""

STYLES = ("base", "page", "table", "figure", "live", "print")
"""Files of ``styles/``; later ones win."""

GENERATOR = '<meta name="generator" content="fedsim '
"""Marks a file as a page of fedsim."""

_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def html(page: Page, *, start: Sequence[str] = ("start",), connects: bool = False) -> str:
    """Return a page as an HTML document, which ``start``, files of ``scripts/``, shows.

    With ``connects`` it may send requests to its own server, as a live page does.
    """
    style, script = _style(), _script((*SCRIPTS, *start))
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hashed(script)}",
            f"style-src {_hashed(style)}",
            *(["connect-src 'self'"] if connects else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    data = {"version": __version__, "dashes": palette.DASHES, "page": page_json(page)}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{GENERATOR}{__version__}">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<style>{style}</style>
</head>
<body>
<main id="unscripted"><h1>{escape(page.title)}</h1><p>{escape(page.answer)}</p>
<p>The script in this file shows figures and tables.</p></main>
<script type="application/json" id="data">{in_script(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def in_script(value: Any) -> str:
    """Return JSON that is safe in a script element; NaN and infinities are ValueErrors."""
    shown = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return shown.translate(_ESCAPES)


@cache
def _style() -> str:
    heat = zip(palette.HEAT_LIGHT, palette.HEAT_DARK, strict=True)
    named = {
        **{f"c{at}": pair for at, pair in enumerate(zip(palette.LIGHT, palette.DARK, strict=True))},
        **dict(zip(("heat-least", "heat-most"), heat, strict=True)),
        "ground": (palette.LIGHT_GROUND, palette.DARK_GROUND),
    }
    colours = "".join(f"--{name}:light-dark({light},{dark});" for name, (light, dark) in named.items())
    written = [_read(f"styles/{name}.css") for name in STYLES]
    return "\n".join([_read("vendor/uplot/uPlot.min.css"), f":root{{{colours}}}", *written])


@cache
def _script(names: tuple[str, ...]) -> str:
    """Return scripts as one, in its own scope."""
    own = "\n".join(_read(f"scripts/{name}.js") for name in names)
    brought = f"/*!\n{_read('vendor/uplot/LICENSE')}*/\n{_read('vendor/uplot/uPlot.iife.min.js')}"
    return f'{brought}\n(() => {{\n"use strict";\n{own}\n}})();\n'


def _read(name: str) -> str:
    return files("fedsim.page").joinpath(name).read_text("utf-8")


def _hashed(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
