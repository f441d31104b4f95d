"""Your own feature table from a .csv, .parquet or .npz file: columns of numbers, a label, perhaps a user.

A row is a sample. Rows are counted from 1, without the line of column names. Features are numbers; truth
values in a .parquet or .npz count as 0 and 1. Texts, empty cells and numbers that are not finite are refused.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, csv, parquet
from pydantic import Field

from fedsim.config import AsTuple, Config
from fedsim.data.base import Dataset, DatasetPlugin, Labels, LoadContext, Samples, blamed
from fedsim.data.file_readers import read_array, read_text, require_file
from fedsim.data.numbering import in_order, numbered
from fedsim.errors import DataError
from fedsim.input_paths import DataPath
from fedsim.numerals import parse_whole
from fedsim.quoting import MAX_SHOWN, quoted, shortened
from fedsim.task import Task, TaskKind


class TableConfig(Config):
    """Settings of a feature table."""

    file: DataPath
    """The table: .csv or .csv.gz in UTF-8 with the columns' names in the first line, .parquet, or .npz with
    an array of two dimensions, a row for each sample, and one of labels."""
    label: str = "label"
    """Column of the class, or of the target of a regression; in a .npz the array of them."""
    user: str | None = None
    """Column of who a sample is from, for a natural partition; in a .npz the array of them."""
    features: Annotated[tuple[str, ...], AsTuple, Field(min_length=1)] | None = None
    """Columns of the features, in this order; all other columns if left out. In a .npz the name of the one
    array of features: ["features"] if left out."""
    kind: TaskKind = "classification"
    """Whether the label is a class (whole numbers, texts or truth values, numbered in sorted order), or the
    target of a regression, a number."""
    test_file: DataPath | None = None
    """A table of the same columns: the test part."""
    standardise: bool = False
    """Whether each feature is shifted and scaled to mean 0 and standard deviation 1 over all
    clients' training samples, and all other samples alike. A feature that is the same in all of them is only
    shifted."""


Columns: TypeAlias = dict[str, pa.ChunkedArray]

_WHOLE = (pa.types.is_integer, pa.types.is_boolean)
_NUMERIC = (*_WHOLE, pa.types.is_floating, pa.types.is_decimal)
_NAMED = {"label": "class", "user": "user"}


class Table(DatasetPlugin[TableConfig]):
    """Features float32 (n, columns); classes and users are numbered in the order of their sorted names."""

    origin = ("file",)

    def load(self, context: LoadContext) -> Dataset:
        """Return all rows, in the order of the file."""
        config = self.config
        with blamed("file"):
            columns = self._columns(context.path(config.file), config.user)
            names = self._names(columns)
            x, labels = self._part(columns, names)
        test_x, all_labels, num_train = None, labels, len(x)
        if config.test_file is not None:
            with blamed("test_file"):
                test_x, test_labels = self._part(self._columns(context.path(config.test_file), None), names)
            all_labels = labels + test_labels
            if len({type(label) for label in all_labels}) > 1:  # texts in one file, numbers in the other
                all_labels = [str(label) for label in all_labels]
        y: Labels
        if config.kind == "regression":
            y, num_outputs, class_names = np.array(all_labels, np.float32), 1, None
        else:
            y, num_outputs = numbered(all_labels)
            class_names = tuple(map(str, in_order(all_labels)))
        return Dataset(
            Task((len(names),), num_outputs, config.kind),
            x,
            y[:num_train],
            test_x,
            None if test_x is None else y[num_train:],
            users=None if config.user is None else numbered(_names_of(columns, config.user, "user"))[0],
            standardise=config.standardise,
            class_names=class_names,
        )

    def _columns(self, path: Path, user: str | None) -> Columns:
        """Return the columns of a file; those of a CSV file are texts."""
        require_file(path)
        try:
            if path.suffix == ".npz":
                return self._arrays(path, user)
            if path.suffix == ".parquet":
                return _by_name(parquet.read_table(path))
            if path.name.endswith((".csv", ".csv.gz")):
                text = pa.py_buffer(read_text(path).encode())
                # Threads would leave the number of the row out of messages.
                reading = csv.ReadOptions(use_threads=False)
                parsing = csv.ParseOptions(newlines_in_values=True)
                names = csv.open_csv(text, reading, parsing).schema.names
                as_texts = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
                return _by_name(csv.read_csv(text, reading, parsing, as_texts))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} cannot be read as a table: {shortened(error, MAX_SHOWN)}") from error
        raise DataError(f"{path} is no table: give a .csv, .csv.gz, .parquet or .npz file")

    def _arrays(self, path: Path, user: str | None) -> Columns:
        """Return the arrays of a .npz as columns, each feature as one."""
        config = self.config
        name, *more = config.features or ("features",)
        if more:
            raise DataError(f"{path} has its features in one array: name that alone", setting="features")
        array = read_array(path, name, "features")
        if array.ndim != 2 or not array.shape[1]:
            raise DataError(
                f"array {quoted(name)} of {path} has the shape {array.shape}; features are (rows, columns)"
            )
        columns = {f"{name}[{place}]": array[:, place] for place in range(array.shape[1])}
        for key, setting in ((config.label, "label"), (user, "user")):
            if key is not None:
                columns[key] = values = read_array(path, key, setting)
                if values.shape != array.shape[:1]:
                    raise DataError(
                        f"array {quoted(key)} of {path} has the shape {values.shape}; give one value for "
                        f"each of the {len(array)} rows of {quoted(name)}"
                    )
        return {key: pa.chunked_array([pa.array(values)]) for key, values in columns.items()}

    def _names(self, columns: Columns) -> Sequence[str]:
        """Return the columns of features."""
        config = self.config
        others = [name for name in columns if name not in (config.label, config.user)]
        names = others if config.features is None or config.file.endswith(".npz") else config.features
        if config.label in names:
            raise DataError(f"the label {quoted(config.label)} is among the features", setting="features")
        if not names:
            raise DataError("the table has no columns of features, besides the label and the user")
        return names

    def _part(self, columns: Columns, names: Sequence[str]) -> tuple[Samples, list[Any]]:
        """Return the features and the labels of a file."""
        label = self.config.label
        if self.config.kind == "regression":
            labels = _numbers(columns, label, "label").tolist()
        else:
            labels = _names_of(columns, label, "label")
        if not labels:
            raise DataError("the table holds no rows")
        x = np.empty((len(labels), len(names)), np.float32)
        for place, name in enumerate(names):
            x[:, place] = _numbers(columns, name, "features")
        return x, labels


def _by_name(table: pa.Table) -> Columns:
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two columns are called {quoted(twice)}: give each a name of its own")
    return dict(zip(names, table.columns, strict=True))


def _column(columns: Columns, name: str, setting: str) -> pa.ChunkedArray:
    """Return a column without empty cells, texts without the spaces around them."""
    if name not in columns:
        problem = f"there is no column {quoted(name)}, but {shortened(', '.join(columns), MAX_SHOWN)}"
        raise DataError(f"{problem}; name the one you mean with {setting}", setting=setting)
    column = columns[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    empty = column.is_null().to_numpy()
    if _is_text(column):
        column = compute.utf8_trim_whitespace(column)
        empty |= compute.equal(column, "").fill_null(True).to_numpy()
    if empty.any():
        raise _cell_fault(name, int(empty.argmax()), "the cell is empty: fill it in, or leave the row out")
    return column


def _numbers(columns: Columns, name: str, setting: str) -> NDArray[np.float32]:
    """Return a column of numbers, each finite as float32."""
    column = _column(columns, name, setting)
    kind = column.type
    if not (_is_text(column) or any(is_it(kind) for is_it in _NUMERIC)):
        raise DataError(f"column {quoted(name)} holds {kind}, but must hold numbers")
    try:
        values = column.cast(pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        row, cell = next((row, cell) for row, cell in enumerate(column) if not _is_number(cell))
        problem = f"{quoted(cell.as_py())} is not a number: leave the column out (features), or give numbers"
        raise _cell_fault(name, row, problem) from None
    with np.errstate(over="ignore"):
        numbers: NDArray[np.float32] = values.astype(np.float32)
    if not (fine := np.isfinite(numbers)).all():
        row = int(fine.argmin())
        raise _cell_fault(name, row, f"{values[row]:g} is not finite, or too large for 32 bits")
    return numbers


def _names_of(columns: Columns, name: str, setting: str) -> list[Any]:
    """Return a column of classes or users: all whole numbers, or all texts."""
    column = _column(columns, name, setting)
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        for row, value in enumerate(values):
            if not value.is_integer():
                mend = "write whole numbers or texts"
                mend += ', or kind = "regression" for targets' if setting == "label" else ""
                raise _cell_fault(name, row, f"{value:g} is no {_NAMED[setting]}: {mend}")
    elif not _is_text(column) and not any(is_it(column.type) for is_it in _WHOLE):
        raise DataError(
            f"column {quoted(name)} holds {column.type}: write whole numbers or texts", setting=setting
        )
    elif any(str(parse_whole(value)) != value for value in values if isinstance(value, str)):
        return values
    return [int(value) for value in values]


def _is_text(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _is_number(cell: pa.Scalar) -> bool:
    try:
        cell.cast(pa.float64())
    except pa.ArrowException:
        return False
    return True


def _cell_fault(column: str, row: int, problem: str) -> DataError:
    return DataError(f"row {row + 1}, column {quoted(column)}: {problem}")


PLUGIN = Table
