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
    described = (*RUN_TABLES.values(), COMPARISON, *STUDY_TABLES)
    documents = [_document(columns, details) for columns in described]
    if as_json:
        say(json.dumps(documents, indent=2, ensure_ascii=False))
        return
    for document in documents:
        headings = list(document["columns"][0])
        rows = [tuple(column.values()) for column in document["columns"]]
        words = frozenset(range(len(headings)))
        table(TextTable(headings, rows, [document["rows"]], text_columns=words, title=document["file"]))


def _document(described: Table, details: bool) -> dict[str, Any]:
    columns = [
        {
            "name": name,
            **({"type": column.type} if details else {}),
            "unit": column.unit,
            "description": column.description,
        }
        for name, column in described.columns.items()
    ]
    return {"name": described.name, "file": described.file, "rows": described.rows, "columns": columns}
