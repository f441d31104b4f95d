"""Settings of the manual: `make docs` builds it.

A line ``<!-- made by: MODULE.FUNCTION ARGUMENTS -->`` in a page stands for the Markdown that a function of
``tools/`` returns, so what the sources say is written nowhere twice.
"""

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
html_show_search_summary = False  # it would be fetched, which a browser refuses to do from a file
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"footer_icons": []}

MADE = re.compile(r"^<!-- made by: (\w+)\.(\w+)(.*) -->$", re.M)


def _fill(app: Any, page: str, source: list[str]) -> None:
    source[0] = MADE.sub(lambda line: getattr(import_module(line[1]), line[2])(*line[3].split()), source[0])


def setup(app: Any) -> None:
    """Let pages contain what functions return."""
    app.connect("source-read", _fill)
