"""Contexts that show runs and studies on a live page; without one, no page module is imported."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
    from fedsim.studies.perform import Progress
    from fedsim.studies.plan import StudyPlan


@contextmanager
def run_on(page: LivePage | None, plan: Plan, folder: Path, passed: str = SIMULATED) -> Iterator[Observe]:
    """Show a run on a page, if there is one; yields the observer for the run.

    ``folder`` has its results after the block; ``passed`` is the word for its time.
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


@contextmanager
def study_on(
    page: LivePage | None,
    plan: StudyPlan,
    parent: Path,
    *,
    is_here: bool = False,
) -> Iterator[tuple[Callable[[Progress], None], Observe]]:
    """Show the runs of a study or a comparison; yields what hears of its progress, and the observer of runs.

    ``is_here`` if runs are done in this process.
    """
    if page is None:
        yield lambda progress: None, unobserved
        return
    from fedsim.page.live_study import LiveStudy

    followed = LiveStudy(plan, parent, is_here=is_here)
    with _ending(page, followed, parent):
        yield followed.update, followed.observe


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
    from fedsim.page.write_report import page_of

    followed.ended(partial(page_of, folder))
    page.follow(followed)
