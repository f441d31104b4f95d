"""What is said of results that are not whole: what is wrong, and each file once."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedsim.errors import OutputError
from fedsim.report.read_parquet import read_columns, read_table
from fedsim.report.read_results import read_checked, read_object

BEGINNING = "cannot be read, so these results are not whole:"


def said(read: Callable[[], object]) -> str:
    with pytest.raises(OutputError) as found:
        read()
    return str(found.value)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    parquet.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


def test_a_file_that_is_gone_is_named_once(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    wanted = f"{gone} {BEGINNING} No such file or directory"
    assert said(lambda: read_checked(gone, Path.read_text)) == wanted
    assert said(lambda: read_table(gone)) == wanted
    assert said(lambda: read_columns(gone, ["a"])) == wanted
    # Of a folder it is a file in it.
    assert said(lambda: read_checked(tmp_path, lambda _: gone.read_text())) == (
        f"{tmp_path} {BEGINNING} {gone}: No such file or directory"
    )


def test_what_is_missing_is_named(table: Path) -> None:
    assert said(lambda: read_columns(table, ["a", "c", "d"])) == f"{table} {BEGINNING} it has no column c, d"
    text = table.with_suffix(".json")
    text.write_text("{}")
    wanted = f"{text} {BEGINNING} it has no 'bus'"
    assert said(lambda: read_checked(text, lambda file: json.loads(file.read_text())["bus"])) == wanted


def test_brackets_that_are_nested_too_deeply_are_damage(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.write_text("[" * 100_000)
    with pytest.raises(OutputError, match="cannot be read, so these results are not whole"):
        read_object(file)
