"""Files of the project as pages of the manual (``docs/conf.py``)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    "ALGORITHMS.md": "reference/algorithms",
    "TABLES.md": "reference/tables",
    "DESIGN.md": "development/design",
    "CONTRIBUTING.md": "development/contributing",
    "CHANGELOG.md": "development/changelog",
    "scenarios/README.md": "development/examples",
    "scenarios/papers/README.md": "development/papers",
}
"""Which page shows which file."""


def page(file: str) -> str:
    """Return a file's Markdown, with links to files that the manual shows as links to their pages."""
    text = (ROOT / file).read_text("utf-8").rstrip()
    for name, shown in PAGES.items():
        text = re.sub(rf"\]\({re.escape(name)}\)", f"](/{shown}.md)", text)
    return text.replace("](docs/", "](/")
