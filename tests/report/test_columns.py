from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedsim.errors import InvariantError
from fedsim.report.columns import Column, Table, count, csv_of, number, seconds, word
from fedsim.report.tables import arrow_rows, arrow_table

TABLE = Table(
    "trips",
    "trips.csv",
    "One row for each trip.",
    {
        "who": word("Who went."),
        "<path>": Column("", "as in a scenario", "Value of <path>."),
        "took_s": seconds("How long it took."),
        "<quantity>_low": Column("float64", "<quantity>", "Least <quantity>."),
        "<quantity>_minus_first": Column("float64", "<quantity>", "<quantity> minus that of the first."),
        "stops_<where>": count("Stops in <where>."),
        "share": number("Share of them."),
    },
)


def test_a_column_is_found_by_its_name_or_by_the_rule_of_its_family() -> None:
    assert TABLE.column("took_s") == Column("float64", "s", "How long it took.")
    assert TABLE.column("stops_new_york") == Column("int64", "1", "Stops in new_york.")
    assert TABLE.column("stops_a line\nof two") == Column("int64", "1", "Stops in a line\nof two.")
    assert TABLE.column("took_s_low") == Column("float64", "s", "Least took_s.")
    assert TABLE.column("took_s_minus_first_low") == Column("float64", "s", "Least took_s_minus_first.")


@pytest.mark.parametrize("name", ["other", "other_low", "stops_", "_low", "training.lr"])
def test_a_column_that_nobody_has_described_is_refused(name: str) -> None:
    with pytest.raises(InvariantError, match="is described nowhere: say what it means"):
        TABLE.column(name)
    with pytest.raises(InvariantError, match="described nowhere"):
        TABLE.check(["who", name])
    with pytest.raises(InvariantError, match="described nowhere"):
        arrow_table(TABLE, {"who": np.array(["ann"], object), name: np.array([1.0])})


def test_paths_stand_in_the_place_of_their_rule() -> None:
    table = TABLE.with_paths(["training.lr", "network"])
    assert list(table.columns)[:4] == ["who", "training.lr", "network", "took_s"]
    assert table.column("training.lr").description == "Value of training.lr."
    with pytest.raises(InvariantError):
        table.column("training.steps")


def test_arrow_tables_have_the_types_that_were_described_and_say_what_they_hold() -> None:
    stale = np.ma.masked_equal(np.array([-1, 3]), -1)
    table = arrow_table(
        TABLE, {"who": np.array(["ann", "bob"], object), "took_s": np.array([np.nan, 2]), "stops_x": stale}
    )
    assert table.to_pydict() == {"who": ["ann", "bob"], "took_s": [None, 2.0], "stops_x": [None, 3]}
    assert table.schema.field("stops_x").metadata == {b"description": b"Stops in x.", b"unit": b"1"}
    assert table.schema.metadata[b"fedsim_table"] == b"trips"
    rows = [
        {"who": "ann", "training.lr": 0.1, "took_s": None},
        {"who": "bob", "training.lr": 1, "took_s": None},
    ]
    table = arrow_rows(TABLE.with_paths(["training.lr"]), rows)
    assert table.schema.types == [pa.string(), pa.float64(), pa.float64()]
    assert table.to_pylist() == rows


@pytest.mark.parametrize("values", [[6, "all"], ["all", 6], [0.5, {"name": "fluid"}]])
def test_values_of_several_types_are_text(values: list[Any]) -> None:
    table = arrow_rows(TABLE.with_paths(["network"]), [{"network": value} for value in values])
    assert table["network"].to_pylist() == list(map(str, values))


PETS = Table("pets", "pets.csv", "One row for each pet.", {"name": word("Name."), "mass": number("Mass.")})


def test_rows_have_a_line_each_below_the_names() -> None:
    rows: list[dict[str, object]] = [{"name": "Tom, the cat", "mass": 4.5}, {"name": "Rex", "mass": None}]
    assert csv_of(PETS, rows) == b'name,mass\n"Tom, the cat",4.5\nRex,\n'


def test_a_text_is_never_a_formula() -> None:
    rows: list[dict[str, object]] = [
        {"name": "=cmd|' /c calc'!A1", "mass": -4.5},
        {"name": "@x", "mass": "-3"},
    ]
    assert csv_of(PETS, rows) == b"name,mass\n'=cmd|' /c calc'!A1,-4.5\n'@x,'-3\n"


def test_without_rows_the_names_are_those_of_the_table() -> None:
    assert csv_of(PETS, []) == b"name,mass\n"


def test_a_column_without_a_description_is_an_error() -> None:
    with pytest.raises(InvariantError, match="'age'"):
        csv_of(PETS, [{"name": "Rex", "age": 3}])
