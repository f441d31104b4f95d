"""The blocks of code in the manual's pages, which tests execute."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?"
    r"^```(?:\{code-block\} )?(?P<language>\w+)\n(?::caption: (?P<file>\S+)\n\n)?(?P<text>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One block of code."""

    page: str  # such as how_to/data
    language: str
    file: str  # its name if the block is a file
    reason: str  # why it is not run, if it is not
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a ``console`` block, without comments and output."""
        lines = [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]
        return [line for line in lines if not line.startswith("#")]


def pages() -> list[str]:
    """Return the names of all pages, sorted."""
    return sorted(str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md"))


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, in order."""
    for found in BLOCK.finditer((DOCS / f"{page}.md").read_text("utf-8")):
        yield Block(page, found["language"], found["file"] or "", found["reason"] or "", found["text"])


def block(page: str, *, file: str = "", after: str = "") -> str:
    """Return the text of the first block of a page after some words, or of the block with a file name."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    found = BLOCK.finditer(text, text.index(after))
    return next(one["text"] for one in found if not file or one["file"] == file)


def fedsim_words(command: str) -> list[str]:
    """Return the arguments of a ``fedsim`` command; empty for another command."""
    words = shlex.split(command, comments=True)
    for end in ("|", ">"):
        words = words[: words.index(end)] if end in words else words
    while words and "=" in words[0]:  # variables of the environment
        words = words[1:]
    return words[1:] if words[:1] == ["fedsim"] else []
