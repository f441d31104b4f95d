"""What tables call the paths of a grid."""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.scenario.load import keys_of


def path_headings(paths: Sequence[str]) -> list[str]:
    """Return the last keys of paths, or the whole paths where that would not tell them apart."""
    lasts = [keys_of(path)[-1] for path in paths]
    heads = (last if lasts.count(last) == 1 else path for last, path in zip(lasts, paths, strict=True))
    return [head.replace("_", "\n") for head in heads]
