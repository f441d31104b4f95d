"""Showing what is done on a live page, if there is one; only then anything of pages is imported."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedsim.errors import FedsimError
from fedsim.report.run_text import SIMULATED
from fedsim.runtime.records.recorder import Observe, unobserved
from fedsim.scenario import Plan, Scenario

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

    def running(self, label: str) -> AbstractContextManager[None]:
        """Show nothing: there is no live page."""
        return nullcontext()

    def hear(self, progress: Progress) -> None:
        """Say nothing of runs in other processes."""


@contextmanager
def comparison_on(
    page: LivePage | None,
    scenarios: Sequence[Scenario],
    parent: Path,
    targets: Sequence[float] = (),
    *,
    is_here: bool = True,
) -> Iterator[LiveStudy | Unfollowed]:
    """Show the runs of a comparison likewise; yields what is to be told of them.

    Args:
        page: Where.
        scenarios: One for each run.
        parent: The folder of its results.
        targets: Accuracies to be reached.
        is_here: Whether runs are done in this process.
    """
    if page is None:
        yield Unfollowed()
        return
    from fedsim.studies.plan import comparison_plan

    plan = comparison_plan(scenarios, targets)
    with study_on(page, plan, parent, "comparison", is_here=is_here) as followed:
        yield followed


@contextmanager
def study_on(
    page: LivePage | None,
    plan: StudyPlan,
    parent: Path,
    kind: Literal["comparison", "study"] = "study",
    *,
    is_here: bool = False,
) -> Iterator[LiveStudy | Unfollowed]:
    """Show the runs of a study likewise.

    Args:
        page: Where.
        plan: Its runs.
        parent: The folder of its results.
        kind: What it is.
        is_here: Whether runs are done in this process.
    """
    if page is None:
        yield Unfollowed()
        return
    from fedsim.page.live_study import LiveStudy

    followed = LiveStudy(plan, parent, kind, is_here=is_here)
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
