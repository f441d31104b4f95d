"""What is shown of a run that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsim.cli.console import heading, note, pairs
from fedsim.cli.progress import SIMULATED
from fedsim.errors import RunError
from fedsim.report import cost_breakdown, number_format
from fedsim.report.record_run import Recorded
from fedsim.report.summary import ineligible_line


def show(recorded: Recorded, folder: Path, *, passed: str = SIMULATED) -> None:
    """Print a run in a few lines.

    Args:
        recorded: The run.
        folder: Its folder, as the user would name it.
        passed: What its time is called.
    """
    summary, result = recorded.summary, recorded.result
    heading(f"{summary['scenario']}: {summary['algorithm']}, seed {summary['seed']}")
    lines = [*_quality(summary["accuracy"], summary["loss"])] or [("accuracy", "not measured")]
    up, down = summary["bytes_up"] + summary["data_up"], summary["bytes_down"] + summary["data_down"]
    parameters = summary["parameters_up"] + summary["parameters_down"]
    rounds = number_format.several(summary["rounds"], "round")
    took = f"{number_format.duration(summary['simulated_s'])} for {rounds}"
    lines += [
        (passed, took),
        ("bytes", f"{number_format.size(up)} up, {number_format.size(down)} down"),
        ("parameters", f"{number_format.count(parameters)} sent"),
        ("drops", _counted(result.drops)),
        ("rejected", _counted(result.rejections)),
    ]
    if who := ineligible_line(summary["ineligible"], summary["clients"]):
        lines.append(("ineligible", who))
    lines.append(("wall time", number_format.duration(summary["wall_s"])))
    pairs(lines)
    heading(cost_breakdown.TITLE)
    pairs(cost_breakdown.lines(summary))
    note(f"\nresults are in {folder}")


def check_finite(faults: Mapping[str, str | None]) -> None:
    """Fail where runs, which have been written and shown, have ended with models that are not finite.

    Args:
        faults: Why each is not finite, None where it is, by what it is called; an empty name for one alone.

    Raises:
        RunError: Some have; the message says which, since when, and why.
    """
    said = [f"{name}: {fault}" if name else fault for name, fault in faults.items() if fault is not None]
    if said:
        raise RunError("\n  ".join(said))


def _quality(accuracy: Mapping[str, Any], loss: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what was measured, with the loss only where there is no accuracy, as in a regression."""
    if accuracy["personal_mean"] is not None:
        spread = number_format.percent(accuracy["personal_mean"], accuracy["personal_std"])
        worst = number_format.percent(accuracy["personal_worst_decile"])
        yield "accuracy", f"{spread} % over clients, worst 10 %: {worst} %"
    elif accuracy["global"] is None and loss["personal_mean"] is not None:
        yield "loss", f"{number_format.number(loss['personal_mean'], loss['personal_std'])} over clients"
        if loss["global"] is not None:
            yield "global", f"{number_format.number(loss['global'])} on the global test set"
    if accuracy["global"] is not None:
        yield "global", f"{number_format.percent(accuracy['global'])} % on the global test set"


def _counted(reasons: Counter[str]) -> str:
    listed = ", ".join(f"{reason}: {reasons[reason]}" for reason in sorted(reasons))
    return f"{reasons.total()} ({listed})" if reasons.total() else "none"
