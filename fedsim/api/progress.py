"""The argument ``progress``: a function of the caller, or a bar by tqdm."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from fedsim.errors import UserError
from fedsim.plugins import install_command, is_installed
from fedsim.report.run_text import measured_words
from fedsim.runtime.records.result import RoundRow
from fedsim.studies.perform import Progress as StudyProgress
from fedsim.studies.plan import StudyPlan

T = TypeVar("T")
Listener: TypeAlias = Callable[[T], None]
Progress: TypeAlias = Listener[RoundRow] | bool | None
"""A function that is called with each round as it ends, True for a bar, False for nothing, or None for a bar
in a notebook and nothing elsewhere."""

ListenerOf: TypeAlias = Callable[[str, int | None], Listener[RoundRow]]
"""Given a run's label and its number of rounds, returns what is called with each round as it ends."""


@contextmanager
def round_listeners(progress: Progress, rounds_of_runs: list[int | None]) -> Iterator[ListenerOf]:
    """Yield what makes a listener for each of several runs that are done one after the other."""
    known = [rounds for rounds in rounds_of_runs if rounds is not None]
    total = sum(known) if len(known) == len(rounds_of_runs) else None
    with _bar(progress, total=total, unit="round") as bar:

        def listener_of(label: str, rounds: int | None) -> Listener[RoundRow]:
            if callable(progress):
                return progress
            if bar is None:
                return _ignore
            before = bar.n
            bar.set_postfix_str("", refresh=False)  # another run's accuracy
            bar.set_description(label)

            def show(row: RoundRow) -> None:
                if row.accuracy is not None:
                    bar.set_postfix_str(measured_words(row.accuracy), refresh=False)
                bar.update(before + min(row.round, rounds or row.round) - bar.n)

            return show

        yield listener_of


@contextmanager
def each_round_listener(progress: Progress, plan: StudyPlan) -> Iterator[Listener[StudyProgress]]:
    """Yield what takes the progress of runs that are done one after the other, round by round."""
    with round_listeners(progress, [run.rounds for run in plan.runs]) as listener_of:
        listener: Listener[RoundRow] = _ignore

        def show(now: StudyProgress) -> None:
            nonlocal listener
            if now.row is not None:
                listener(now.row)
            elif now.run is not None and not now.said:
                listener = listener_of(now.run.label, now.run.rounds)

        yield show


@contextmanager
def study_listener(
    progress: Listener[StudyProgress] | bool | None, name: str
) -> Iterator[Listener[StudyProgress]]:
    """Yield what is called with the progress of a study; see :func:`round_listeners`."""
    layout = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"  # no count: the total is a share
    with _bar(progress, total=1.0, desc=name, bar_format=layout) as bar:

        def show(now: StudyProgress) -> None:
            bar.set_postfix_str(f"{now.kept + now.ended} of {now.total} runs", refresh=False)
            bar.update(now.share - bar.n)

        yield progress if callable(progress) else _ignore if bar is None else show


@contextmanager
def _bar(progress: Any, **options: Any) -> Iterator[Any]:
    """Yield a bar of tqdm, or None where nothing is shown; the bar is removed when the work succeeds."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise UserError(
            "progress is a function that is called as the work goes on, such as progress=print, or True for "
            f"a bar, or False for nothing, and not {progress!r}"
        )
    has_widgets = _is_notebook() and is_installed("tqdm") and is_installed("ipywidgets")
    if callable(progress) or not (has_widgets if progress is None else progress):
        yield None
        return
    if not is_installed("tqdm"):
        raise UserError(
            "progress=True needs the package tqdm, which is not installed: give a function instead, such as "
            f"progress=print, or install it: {install_command('jupyter')}"
        )
    tqdm = import_module("tqdm.notebook" if has_widgets else "tqdm").tqdm
    bar = tqdm(miniters=0, leave=False, **options)
    try:
        yield bar
        bar.total = bar.n  # a budget may end a run early, and a notebook shows an unfinished bar in red
    finally:
        bar.close()


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config


def _ignore(now: object) -> None:
    pass
