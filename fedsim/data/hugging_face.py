"""Data sets of the Hugging Face Hub or of local files, by the package ``datasets``, an extra.

The extra ``datasets`` installs it, and it is imported only when such a data set is loaded.

A column of samples holds images, lists of floats, lists of whole numbers, which are the tokens of a text, or
single numbers; several columns of single numbers make a vector. A column of labels holds classes, texts
(numbered in sorted order), or floats, the targets of a regression.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from fedsim.config import AsTuple, Config
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext, blamed
from fedsim.data.items import dataset_of, read_items
from fedsim.data.numbering import in_order, numbered
from fedsim.errors import DataError
from fedsim.input_paths import MARK, DataPath, placed_data
from fedsim.plugins import install_command
from fedsim.quoting import MAX_SHOWN, quoted, shortened, with_type
from fedsim.ranges import Classes, Tokens


class HuggingFaceConfig(Config):
    """Settings of a data set of Hugging Face."""

    name: str = Field(min_length=1, examples=["'ylecun/mnist'"])
    """Name on the Hub, which is downloaded unless it is in the cache (HF_HOME; HF_HUB_OFFLINE=1 downloads
    nothing); a local folder, as a path with a slash; or a kind of files, such as csv, json, parquet or
    imagefolder, for ``files``."""
    files: Annotated[tuple[DataPath, ...], AsTuple, Field(min_length=1)] | None = None
    """Local files of this kind."""
    subset: str | None = None
    """Which of several configurations of the data set."""
    revision: str | None = None
    """Commit or tag on the Hub; its newest if left out, so that a run can be repeated only with one."""
    split: str = "train"
    """Split of the samples."""
    test: str | None = None
    """Split of a test part."""
    x: Annotated[tuple[str, ...], AsTuple, Field(min_length=1)] = ("image",)
    """Column of the samples, or several columns of numbers."""
    y: str = "label"
    """Column of the labels."""
    user: str | None = None
    """Column of who a sample is from, for a natural partition."""
    num_classes: Classes | None = None
    """Classes; without it, those that the data set declares, or one more than the largest label."""
    vocabulary: Tokens | None = None
    """Different tokens, where samples are texts; without it, one more than the largest token."""

    @field_validator("name", mode="after")
    @classmethod
    def _or_folder(cls, name: str) -> str:
        place = placed_data(name)
        is_path = name.startswith(".") or name.endswith("/")  # as no name on the Hub
        return place if is_path or ("/" in name and Path(place).is_dir()) else name


class HuggingFace(DatasetPlugin[HuggingFaceConfig]):
    """All rows of a split, in their order."""

    origin = ("name", "files", "subset", "split")

    def load(self, context: LoadContext) -> Dataset:
        """Return the rows as arrays."""
        config = self.config
        rows = self._rows(config.split, "split", context)
        test_rows = None if config.test is None else self._rows(config.test, "test", context)
        declared = rows.features[config.y]
        texts = rows[config.y][:] if getattr(declared, "dtype", "") in ("string", "large_string") else []
        if texts and test_rows is not None:
            texts = [*texts, *test_rows[config.y]]
        numbers = dict(zip(texts, numbered(str(text) for text in texts)[0].tolist(), strict=True))
        with blamed("split"):
            items = read_items(_Items(rows, config, numbers, config.user), config.name)
        test = None
        if test_rows is not None:
            with blamed("test"):
                test = read_items(_Items(test_rows, config, numbers, None), f"{config.test} of {config.name}")
        num_classes = config.num_classes or getattr(declared, "num_classes", None) or len(set(texts)) or None
        dataset = dataset_of(items, test, num_classes, config.vocabulary)
        names = tuple(getattr(declared, "names", ()) or in_order(str(text) for text in texts))
        # A number of classes of the user's own may be another than the names'.
        return replace(dataset, class_names=names) if len(names) == dataset.task.num_outputs else dataset

    def _rows(self, split: str, setting: str, context: LoadContext) -> Any:
        """Return a split, once it is there with all columns."""
        try:
            import datasets
        except ImportError as error:
            problem = f"it is read by the package datasets, which cannot be imported ({error})"
            raise DataError(f"{problem}: {install_command('datasets')}", setting="name") from error
        config = self.config
        datasets.disable_progress_bars()
        with blamed("files"):
            files = config.files and [str(context.path(file)) for file in config.files]
        with blamed("name"):
            name = str(context.path(config.name)) if MARK in config.name else config.name
        try:
            rows = datasets.load_dataset(
                name, config.subset, data_files=files, split=split, revision=config.revision
            )
        except Exception as error:  # of any of the packages that it uses
            problem = f"split {quoted(split)} of {config.name} cannot be loaded: {with_type(error)}"
            raise DataError(problem, setting=setting if "split" in str(error) else "name") from error
        columns = [*((name, "x") for name in config.x), (config.y, "y")]
        columns += [] if config.user is None or setting == "test" else [(config.user, "user")]
        for name, key in columns:
            if name not in rows.column_names:
                there = shortened(", ".join(rows.column_names), MAX_SHOWN)
                problem = f"{config.name} has no column {quoted(name)}, but {there}"
                raise DataError(f"{problem}; name the one you mean with {key}", setting=key)
        return rows


class _Items:
    """Rows as items (x, y) or (x, y, user)."""

    def __init__(
        self, rows: Any, config: HuggingFaceConfig, numbers: Mapping[str, int], user: str | None
    ) -> None:
        self._rows = rows
        self._config = config
        self._numbers = numbers
        self._user = user

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: int) -> tuple[Any, ...]:
        config, row = self._config, self._rows[at]
        for name in (*config.x, config.y, *([self._user] if self._user else ())):
            if row[name] is None:
                raise DataError(f"column {quoted(name)} is empty")
        x = [row[name] for name in config.x]
        for name, value in zip(config.x, x, strict=True):
            if isinstance(value, str):
                mend = "turn texts into lists of tokens, or use the data set texts"
                raise DataError(f"column {quoted(name)} holds the text {quoted(value)}: {mend}")
            if len(x) > 1 and not isinstance(value, int | float):
                what = type(value).__name__
                raise DataError(f"column {quoted(name)} holds {what}; several columns are of single numbers")
        are_numbers = isinstance(x[0], int | float)
        y = self._numbers.get(row[config.y], row[config.y]) if self._numbers else row[config.y]
        user = () if self._user is None else (row[self._user],)
        return (np.array(x, np.float32) if are_numbers else x[0], y, *user)


PLUGIN = HuggingFace
