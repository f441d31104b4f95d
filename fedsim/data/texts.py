"""Your own short texts from a CSV file, each with a label and a user.

A word is a sequence of letters, digits and underscores in lower case, with the apostrophes inside it and a
``@`` or ``#`` in front of it. The vocabulary is made from the words of the file.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext, blamed
from fedsim.data.file_readers import read_text
from fedsim.data.numbering import in_order, numbered
from fedsim.errors import DataError
from fedsim.input_paths import DataPath
from fedsim.quoting import MAX_SHOWN, quoted, shortened
from fedsim.ranges import PositiveSamples, Tokens
from fedsim.task import Task

PADDING = 0
"""Token that pads a short text at its end."""
UNKNOWN = 1
"""Token of a word that is too rare for the vocabulary."""

_WORD = re.compile(r"[@#]?\w+(?:'\w+)*")


class TextsConfig(Config):
    """Settings of texts from a file."""

    file: DataPath
    """The table, .csv or .csv.gz (up to 1 GiB unpacked) in UTF-8, with its columns' names in the first
    line."""
    user: str = "user"
    """Column that says who wrote a text."""
    label: str = "label"
    """Column of the class."""
    text: str = "text"
    """Column of the text."""
    length: Tokens = 32
    """Words of a sample: longer texts are cut, shorter ones are padded with token 0 at their end."""
    vocabulary: Annotated[Tokens, Field(ge=3)] = 5000
    """Number of tokens: 0 is padding, 1 is any unknown word, and the others are the most frequent words,
    equally frequent ones in alphabetical order."""
    min_samples: PositiveSamples = 1
    """Leave out users with fewer texts than this, before words and labels are counted."""


Row = tuple[str, str, str]
"""User, label and text."""


class Texts(DatasetPlugin[TextsConfig]):
    """Texts, in the order of the file; users and labels are numbered in the order of their sorted names."""

    origin = ("file",)

    def load(self, context: LoadContext) -> Dataset:
        """Return all texts; there is no test part."""
        config = self.config
        with blamed("file"):
            path = context.path(config.file)
        rows = self._frequent(self._rows(path), path)
        words = [_WORD.findall(text.lower()) for _, _, text in rows]
        token_of = _tokens(words, config.vocabulary)
        x = np.full((len(rows), config.length), PADDING, np.int64)
        for row, text in zip(x, words, strict=True):
            tokens = [token_of.get(word, UNKNOWN) for word in text[: config.length]]
            row[: len(tokens)] = tokens
        users, _ = numbered([user for user, _, _ in rows])
        labels = [label for _, label, _ in rows]
        y, num_classes = numbered(labels)
        task = Task((config.length,), num_classes, vocabulary=config.vocabulary)
        return Dataset(task, x, y, users=users, class_names=tuple(in_order(labels)))

    def _rows(self, path: Path) -> list[Row]:
        columns = {"user": self.config.user, "label": self.config.label, "text": self.config.text}
        rows = []
        reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
        try:
            for setting, column in columns.items():
                if column not in (reader.fieldnames or ()):
                    raise DataError(
                        f"{path} has no column {quoted(column)}, it has: "
                        f"{shortened(', '.join(reader.fieldnames or ()), MAX_SHOWN)}; "
                        f"name the one you mean with {setting}",
                        setting=setting,
                    )
            for row in reader:
                user, label, text = cells = [(row[column] or "").strip() for column in columns.values()]
                problem = "more cells than columns; quote texts with commas" if None in row else ""
                if not problem and "" in cells:
                    column = list(columns.values())[cells.index("")]
                    problem = f"column {quoted(column)} is empty: fill it in, or leave the line out"
                if problem:
                    raise DataError(f"{path}, line {reader.line_num}: {problem}", setting="file")
                rows.append((user, label, text))
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.reader.line_num}: {error}", setting="file") from error
        return rows

    def _frequent(self, rows: list[Row], path: Path) -> list[Row]:
        """Return the rows of users with at least ``min_samples`` of them."""
        counts = Counter(user for user, _, _ in rows)
        kept = [row for row in rows if counts[row[0]] >= self.config.min_samples]
        if not rows:
            raise DataError(f"{path} has a line of column names but no texts", setting="file")
        if not kept:
            most = max(counts.values(), default=0)
            raise DataError(
                f"no user of {path} has {self.config.min_samples} texts (the most are {most}): "
                "lower min_samples",
                setting="min_samples",
            )
        return kept


def _tokens(texts: Sequence[Sequence[str]], vocabulary: int) -> dict[str, int]:
    counts = Counter(word for text in texts for word in text)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - 2]
    return {word: token for token, word in enumerate(frequent, UNKNOWN + 1)}


PLUGIN = Texts
