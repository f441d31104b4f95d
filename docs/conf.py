"""Settings of the manual: `make docs` builds it.

A line ``<!-- made by: MODULE.FUNCTION ARGUMENTS -->`` in a page stands for the Markdown that a function of
``tools/`` returns, so what the sources say is written nowhere twice.
"""

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from demo_report import EXTRA

import fedsim

project = "fedsim"
author = copyright = "The fedsim maintainers"  # noqa: A001
release = version = fedsim.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 3
nitpicky = True
# Signatures name types that this manual leaves out, fedsim's own and those of other libraries.
nitpick_ignore_regex = [("py:.*", ".*")]
napoleon_use_ivar = True
smartquotes = False  # commands have dashes
autodoc_typehints = "description"
autodoc_member_order = "bysource"
default_role = "code"
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"fedsim {release}"
html_static_path = ["static"]
EXTRA.mkdir(parents=True, exist_ok=True)
html_extra_path = [str(EXTRA)]  # the demo's report, which a page of the manual makes
html_css_files = ["manual.css"]
html_js_files = ["manual.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"footer_icons": []}

ARTICLE = re.compile(r"<article[^>]* role=\"main\".*?</article>", re.S)
MADE = re.compile(r"^<!-- made by: (\w+)\.(\w+)(.*) -->$", re.M)


def _fill(app: Any, page: str, source: list[str]) -> None:
    source[0] = MADE.sub(lambda line: getattr(import_module(line[1]), line[2])(*line[3].split()), source[0])


def _add_scripts(app: Any, page: str, *_: Any) -> None:
    for file in ("pages.js", "search.js") if page == "search" else ():
        app.add_js_file(file, loading_method="defer")


def _write_pages(app: Any, error: Exception | None) -> None:
    """Write the articles into a script: the search shows excerpts, and cannot fetch them from files."""
    if error is None:
        articles = {
            f"./{page}.html": found[0]
            for page in sorted(app.env.found_docs)
            if (found := ARTICLE.search((app.outdir / f"{page}.html").read_text("utf-8")))
        }
        (app.outdir / "_static" / "pages.js").write_text(f"const PAGES = {json.dumps(articles)};\n", "utf-8")


def setup(app: Any) -> None:
    """Let pages contain what functions return, and the search show excerpts."""
    app.connect("source-read", _fill)
    app.connect("html-page-context", _add_scripts)
    app.connect("build-finished", _write_pages)
