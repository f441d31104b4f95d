"""Showing what is done on a live page, if there is one; only then anything of pages is imported."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedsim.errors import FedsimError
from fedsim.report.run_text import SIMULATED
from fedsim.runtime.records.recorder import Observe, unobserved
from fedsim.scenario import Plan

if TYPE_CHECKING:
    from fedsim.page.live_page import LivePage
    from fedsim.page.live_run import LiveRun
    from fedsim.page.live_study import LiveStudy
    from fedsim.page.page import Page
    from fedsim.studies.perform import Progress
    from fedsim.studies.plan import StudyPlan


@contextmanager
def run_on(page: LivePage | None, plan: Plan, folder: Path, passed: str = SIMULATED) -> Iterator[Observe]:
    """Show a run on a page, if there is one, while the block does it; yields what is to observe the run.

    Args:
        page: Where.
        plan: What is run.
        folder: Of its results, which are there when the block ends well.
        passed: What its time is called.
    """
    if page is None:
        yield unobserved
        return
    from fedsim.figures.run_figures import targets_of
    from fedsim.page.live_run import LiveRun

    title = f"{plan.name}: {plan.algorithm}, seed {plan.parts.seed}"
    followed = LiveRun(title, passed=passed, targets=targets_of(tomllib.loads(plan.scenario_toml)))
    with _ending(page, followed, folder):
        yield followed.observe


class Unfollowed:
    """What is told of runs that no page shows."""

    observe = staticmethod(unobserved)

    def hear(self, progress: Progress) -> None:
        """Show nothing: there is no live page."""


@contextmanager
def study_on(
    page: LivePage | None,
    plan: StudyPlan,
    parent: Path,
    *,
    is_here: bool = False,
) -> Iterator[LiveStudy | Unfollowed]:
    """Show the runs of a study or a comparison likewise.

    Args:
        page: Where.
        plan: Its runs.
        parent: The folder of its results.
        is_here: Whether runs are done in this process.
    """
    if page is None:
        yield Unfollowed()
        return
    from fedsim.page.live_study import LiveStudy

    followed = LiveStudy(plan, parent, is_here=is_here)
    with _ending(page, followed, parent):
        yield followed


@contextmanager
def _ending(page: LivePage, followed: LiveRun | LiveStudy, folder: Path) -> Iterator[None]:
    page.follow(followed)
    try:
        yield
    except FedsimError as error:
        followed.failed(f"It failed: {error}")
        raise
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        followed.failed("It was interrupted." if interrupted else f"It failed: {error!r}")
        raise
    followed.ended(lambda: _report(folder))
    page.follow(followed)


def _report(folder: Path) -> Page:
    from fedsim.page.write_report import page_of

    return page_of(folder)
