"""The figures of a study or a comparison, from its folder."""

from __future__ import annotations

from pathlib import Path

from fedsim.figures.amounts import amount
from fedsim.figures.base import Section, Target
from fedsim.figures.compared_runs import compared_runs
from fedsim.figures.run_figures import QUALITY, SPENDING, filled
from fedsim.figures.spending import spending_figures
from fedsim.figures.study_curves import study_curve_figures
from fedsim.report.cost_breakdown import figures, means
from fedsim.report.summary import read_summary
from fedsim.studies.curves import read_curve


def study_sections(folder: Path) -> list[Section]:
    """Return the figures of a study or a comparison, under headings, of the runs that have ended.

    Args:
        folder: Its folder.

    Raises:
        OutputError: A file is not there, or damaged.
        ScenarioError: The folder of a study whose scenarios are not valid here.
    """
    runs = compared_runs(folder)
    targets = [Target(value, f"target {amount(value, 'share')}") for value in runs.targets]
    curves = {
        name: {seed: read_curve(place) for seed, place in by_seed.items()}
        for name, by_seed in runs.folders.items()
    }
    spent = {
        name: means([figures(read_summary(place)) for place in by_seed.values()])
        for name, by_seed in runs.folders.items()
    }
    several = any(len(by_seed) > 1 for by_seed in runs.folders.values())
    return filled(
        Section(*QUALITY, study_curve_figures(curves, runs.of, targets)),
        Section(*SPENDING, spending_figures(spent, "mean over seeds" if several else "")),
    )
