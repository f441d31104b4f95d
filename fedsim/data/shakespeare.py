"""Shakespeare, or any other play: predict the next character of a speech.

The file is plain text. A speech is a line with the speaker's name and a colon, then the spoken lines, then an
empty line. All speeches under one name, joined by line ends, are one user's text, and a sample is a window of
it. With a stride below length + 1 windows overlap, and since a client's windows are split at random, its
training samples then contain characters of its validation and test samples.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.config import Config
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext, blamed
from fedsim.data.file_readers import read_text
from fedsim.errors import DataError
from fedsim.input_paths import DataPath
from fedsim.quoting import quoted
from fedsim.ranges import PositiveSamples, Tokens
from fedsim.task import Task

UNKNOWN = 0
"""Token of every character that is too rare for the vocabulary."""


class ShakespeareConfig(Config):
    """Settings of a play."""

    file: DataPath = Field(default="shakespeare/input.txt", validate_default=True)
    """The text, in UTF-8."""
    length: Tokens = 80
    """Characters of a sample; the one that follows them is its label."""
    stride: Tokens = 10
    """Characters from the start of one sample to the start of the next; 1 takes every window. Below
    length + 1 the windows overlap, across train, validation and test too."""
    vocabulary: Annotated[Tokens, Field(ge=2)] = 90
    """Number of tokens, and of the model's outputs. Token 0 is any unknown character, the next ones are the
    file's characters in the order of their code points (the most frequent, if there are too many), and the
    rest is unused."""
    min_samples: PositiveSamples = 1
    """Leave out speakers with fewer samples than this."""


class Shakespeare(DatasetPlugin[ShakespeareConfig]):
    """A play's speakers, numbered in the order of their names."""

    origin = ("file",)

    def load(self, context: LoadContext) -> Dataset:
        """Return all windows, speaker after speaker; there is no test part."""
        config = self.config
        with blamed("file"):
            path = context.path(config.file)
        text = read_text(path).replace("\r\n", "\n").replace("\r", "\n")
        speeches = _speeches(text, path)
        token_of = _tokens(text, config.vocabulary)
        windows = []
        for speaker in sorted(speeches):
            joined = "\n".join(speeches[speaker])
            tokens = token_of[np.frombuffer(joined.encode("utf-32-le"), np.uint32)]
            if len(tokens) > config.length:
                every = np.lib.stride_tricks.sliding_window_view(tokens, config.length + 1)
                windows.append(every[:: config.stride])
        windows = [some for some in windows if len(some) >= config.min_samples]
        if not windows:
            raise DataError(
                f"no speaker of {path} has {config.min_samples} samples of {config.length} characters "
                "and a next one: lower length" + (" or min_samples" if config.min_samples > 1 else ""),
                setting="min_samples" if config.min_samples > 1 else "length",
            )
        return Dataset(
            Task((config.length,), config.vocabulary, vocabulary=config.vocabulary),
            np.concatenate([some[:, :-1] for some in windows]),
            np.concatenate([some[:, -1] for some in windows]),
            users=np.repeat(np.arange(len(windows)), [len(some) for some in windows]),
        )


def _speeches(text: str, path: Path) -> dict[str, list[str]]:
    """Return the speeches of each speaker, in the order of the file."""
    speeches: dict[str, list[str]] = {}
    speech: list[str] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            speech = None
        elif speech is None:
            name = line.strip()
            if not name.endswith(":") or name == ":":
                raise DataError(
                    f"{path}, line {number}: {quoted(line)} begins a speech, so it has to be a speaker's "
                    "name and a colon; an empty line ends a speech",
                    setting="file",
                )
            speeches.setdefault(name[:-1].rstrip(), []).append("")
            speech = speeches[name[:-1].rstrip()]
        else:
            speech[-1] += f"\n{line}" if speech[-1] else line
    return speeches


def _tokens(text: str, vocabulary: int) -> NDArray[np.int64]:
    """Return the token of each code point up to the text's largest."""
    counts = Counter(text)
    frequent = sorted(counts, key=lambda character: (-counts[character], character))[: vocabulary - 1]
    token_of = np.full(max(map(ord, counts), default=0) + 1, UNKNOWN, np.int64)
    token_of[[ord(character) for character in sorted(frequent)]] = np.arange(1, len(frequent) + 1)
    return token_of


PLUGIN = Shakespeare
