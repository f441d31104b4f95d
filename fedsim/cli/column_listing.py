"""``fedsim list columns``."""

from __future__ import annotations

import json
from typing import Any

from fedsim.cli.console import say, table
from fedsim.report.columns import Table
from fedsim.report.run_columns import COMPARISON, RUN_TABLES
from fedsim.report.text_table import TextTable
from fedsim.studies.study_columns import STUDY_TABLES


def list_columns(details: bool, as_json: bool) -> None:
    """Print the columns of all tables with unit and description, and with their type if so wished."""
    documents = [_document(one, details) for one in (*RUN_TABLES.values(), COMPARISON, *STUDY_TABLES)]
    if as_json:
        say(json.dumps(documents, indent=2, ensure_ascii=False))
        return
    for one in documents:
        headings, rows = list(one["columns"][0]), [tuple(column.values()) for column in one["columns"]]
        words = frozenset(range(len(headings)))
        table(TextTable(headings, rows, [one["rows"]], text_columns=words, title=one["file"]))


def _document(one: Table, details: bool) -> dict[str, Any]:
    columns = [
        {
            "name": name,
            **({"type": column.type} if details else {}),
            "unit": column.unit,
            "description": column.description,
        }
        for name, column in one.columns.items()
    ]
    return {"name": one.name, "file": one.file, "rows": one.rows, "columns": columns}
