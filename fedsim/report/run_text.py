"""The summary of a run as text."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.report import cost_breakdown, number_format
from fedsim.report.cost_breakdown import Summary
from fedsim.report.summary import ineligible_line
from fedsim.report.text_table import Pairs, aligned
from fedsim.runtime.evaluation import Accuracy

SIMULATED = "simulated"
"""Name of the time of simulated runs."""

PASSED = "passed"
"""Name of the time of runs over sockets."""

TIMES = {SIMULATED: "simulated time", PASSED: "real time"}


def title(summary: Summary) -> str:
    """Return the title of a run; one that has not come to its end says so."""
    status = f" ({summary['status']})" if "status" in summary else ""
    return f"{summary['scenario']}: {summary['algorithm']}, seed {summary['seed']}{status}"


def run_sentence(summary: Summary, passed: str = SIMULATED) -> str:
    """Return the result of a run in one sentence; ``passed`` is the name of its time."""
    accuracy, loss = summary["accuracy"], summary["loss"]
    if accuracy["personal_mean"] is not None:
        worst = number_format.percent(accuracy["personal_worst_decile"])
        measured = f"a mean accuracy of {number_format.percent(accuracy['personal_mean'])} % over clients"
        measured += f", {worst} % over the worst 10 % of them"
    elif accuracy["global"] is not None:
        measured = f"an accuracy of {number_format.percent(accuracy['global'])} % on the global test set"
    elif loss["personal_mean"] is not None:
        measured = f"a mean loss of {number_format.number(loss['personal_mean'])} over clients"
    elif loss["global"] is not None:
        measured = f"a loss of {number_format.number(loss['global'])} on the global test set"
    else:
        measured = "not been measured"
    time = f"{number_format.duration(summary['simulated_s'])} of {TIMES[passed]}"
    size = sum(summary[name] for name in ("bytes_up", "bytes_down", "data_up", "data_down"))
    spent = f"{number_format.several(summary['rounds'], 'round')}, {time} and {number_format.size(size)}"
    end = "; it has diverged" if summary.get("divergence") else ""
    if not summary["finite"]:
        end = "; a model, or a loss, is not finite"
    return f"After {spent} {summary['algorithm']} has {measured}{end}."


def pairs(summary: Summary, passed: str = SIMULATED) -> Pairs:
    """Return accuracy or loss, time, bytes and drops; ``passed`` is the name of the time."""
    accuracy, loss = summary["accuracy"], summary["loss"]
    lines: Pairs = []
    if accuracy["personal_mean"] is not None:
        spread = number_format.percent(accuracy["personal_mean"], accuracy["personal_std"])
        worst = number_format.percent(accuracy["personal_worst_decile"])
        lines.append(("accuracy", f"{spread} % over clients, worst 10 %: {worst} %"))
    if accuracy["global"] is not None:
        lines.append(("global", f"{number_format.percent(accuracy['global'])} % on the global test set"))
    if not lines and loss["personal_mean"] is not None:
        spread = number_format.number(loss["personal_mean"], loss["personal_std"])
        lines.append(("loss", f"{spread} over clients"))
        if loss["global"] is not None:
            lines.append(("global", f"{number_format.number(loss['global'])} on the global test set"))
    if not lines:
        lines.append(("accuracy", "not measured"))
    up, down = summary["bytes_up"] + summary["data_up"], summary["bytes_down"] + summary["data_down"]
    parameters = summary["parameters_up"] + summary["parameters_down"]
    rounds = number_format.several(summary["rounds"], "round")
    end = f", ended by run.until.{summary['stopped_by']}" if summary["stopped_by"] else ""
    lines += [
        (passed, f"{number_format.duration(summary['simulated_s'])} for {rounds}{end}"),
        ("bytes", f"{number_format.size(up)} up, {number_format.size(down)} down"),
        *_without_codecs(summary),
        ("parameters", f"{number_format.count(parameters)} sent"),
        ("drops", _counted(summary["drops"], summary["drops_by_cause"])),
        ("rejected", _counted(summary["rejected"], summary["rejected_by_reason"])),
    ]
    if (edges := summary.get("edges")) is not None:
        at_server = f"{number_format.size(edges['at_server_up'])} up"
        at_server += f", {number_format.size(edges['at_server_down'])} down over the server's link"
        lines.append(("edges", f"{number_format.several(edges['means'], 'mean')}, {at_server}"))
    if (faults := summary.get("faults")) is not None:
        lines.append(("faults", _counted(sum(faults.values()), faults)))
    if (who := ineligible_line(summary["ineligible"], summary["clients"])) is not None:
        lines.append(("ineligible", who))
    return [*lines, ("wall time", number_format.duration(summary["wall_s"]))]


def run_blocks(summary: Summary) -> list[tuple[str, Pairs]]:
    """Return all of it as names and values under headings."""
    lines = pairs(summary)
    if text := summary.get("divergence"):
        lines.append(("diverged", text))
    return [(title(summary), lines), (cost_breakdown.TITLE, cost_breakdown.lines(summary))]


def run_text(summary: Summary) -> str:
    """Return all of it as plain lines."""
    return "\n\n".join("\n".join([heading, *aligned(lines)]) for heading, lines in run_blocks(summary))


def measured_words(accuracy: Accuracy | None) -> str:
    """Return the mean accuracy, or else the mean loss, in words; empty where nothing was measured."""
    if accuracy is not None and accuracy.mean is not None:
        return f"accuracy {number_format.percent(accuracy.mean)} %"
    if accuracy is not None and accuracy.mean_loss is not None:
        return f"loss {number_format.number(accuracy.mean_loss)}"
    return ""


def _counted(total: int, reasons: Mapping[str, int]) -> str:
    if not total:
        return "none"
    return f"{total} ({', '.join(f'{reason}: {reasons[reason]}' for reason in sorted(reasons))})"


def _without_codecs(summary: Summary) -> list[tuple[str, str]]:
    """Return the line of what would have been sent without codecs; none where nothing is coded."""
    ways = ("up", "down")
    plain = [summary.get(f"bytes_plain_{way}", summary[f"bytes_{way}"]) for way in ways]
    if plain == [summary[f"bytes_{way}"] for way in ways]:
        return []
    up, down = (number + summary[f"data_{way}"] for number, way in zip(plain, ways, strict=True))
    return [("uncoded", f"{number_format.size(up)} up, {number_format.size(down)} down without codecs")]
