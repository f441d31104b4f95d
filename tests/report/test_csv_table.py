import pytest

from fedsim.errors import InvariantError
from fedsim.report.columns import Table, number, word
from fedsim.report.csv_table import csv_of

TABLE = Table("pets", "pets.csv", "One row for each pet.", {"name": word("Name."), "mass": number("Mass.")})


def test_rows_have_a_line_each_below_the_names() -> None:
    rows: list[dict[str, object]] = [{"name": "Tom, the cat", "mass": 4.5}, {"name": "Rex", "mass": None}]
    assert csv_of(TABLE, rows) == b'name,mass\n"Tom, the cat",4.5\nRex,\n'


def test_a_text_is_never_a_formula() -> None:
    rows: list[dict[str, object]] = [
        {"name": "=cmd|' /c calc'!A1", "mass": -4.5},
        {"name": "@x", "mass": "-3"},
    ]
    assert csv_of(TABLE, rows) == b"name,mass\n'=cmd|' /c calc'!A1,-4.5\n'@x,'-3\n"


def test_without_rows_the_names_are_those_of_the_table() -> None:
    assert csv_of(TABLE, []) == b"name,mass\n"


def test_a_column_without_a_description_is_an_error() -> None:
    with pytest.raises(InvariantError, match="'age'"):
        csv_of(TABLE, [{"name": "Rex", "age": 3}])
