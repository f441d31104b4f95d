"""Write TABLES.md: what the columns of each table mean, from their descriptions.

Run from the root of the repository, after a column was added or has changed::

    python tools/tables_page.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedsim.report.columns import Table
from fedsim.report.run_columns import COMPARISON, RUN_TABLES
from fedsim.report.text_table import TextTable, to_markdown
from fedsim.studies.study_columns import STUDY_TABLES

PAGE = Path("TABLES.md")
HEAD = """# The tables

This page is written from the descriptions of columns by `python tools/tables_page.py`. `fedsim list columns`
prints them too. Each field of a Parquet file, or of an Arrow table from Python, has its `description` and its
`unit` as metadata.

*Up* is towards the server. Bytes are those of encoded frames; what protocols add on the link is overhead, and
stands apart. Virtual times are from the start of the run; over sockets they are real. The unit 1 is that of
counts and shares; words, and what is true or false, have none. What is null, or empty in a CSV file, was not
measured, or there is no such thing. A name such as `dropped_<cause>` stands for a column for each cause that
occurs."""
SECTIONS = {
    "A run": tuple(RUN_TABLES.values()),
    "A comparison": (COMPARISON,),
    "A study": STUDY_TABLES,
}


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for title, tables in SECTIONS.items():
        yield from ("", f"## {title}")
        for table in tables:
            yield from ("", f"### `{table.file}`", "", table.rows, "", _rows(table))


def _rows(table: Table) -> str:
    headings, rows = ("column", "type", "unit", "description"), []
    for name, column in table.columns.items():
        # A bracket would begin a tag of HTML, but for the name, which is code.
        words = [cell.replace("<", "&lt;") for cell in (column.unit, column.description)]
        rows.append((f"`{name}`", column.type or "as the values", *words))
    return to_markdown(TextTable(headings, rows, text_columns=frozenset(range(len(headings))))).rstrip()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
