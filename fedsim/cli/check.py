"""``fedsim check``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fedsim.cli import options, plans
from fedsim.cli.console import heading, pairs, say, table
from fedsim.errors import RunError, UserError


@click.command("check")
@options.scenario
@options.algorithm
def command(scenario_file: Path, overrides: Sequence[str], algorithm: str | None) -> None:
    """Check a scenario, and show what it will cost.

    Shows the fleet, the data and the models, and rehearses the first rounds without learning, so that bytes
    and times are measured and not guessed. A scenario whose rehearsal fails is at fault: exit status 2.
    """
    from fedsim.report import ineligible, outlook, text
    from fedsim.report.forecast import rehearse

    scenario = plans.load(scenario_file, overrides, algorithm=algorithm)
    parts = plans.plan(scenario, scenario_file, verify=False).parts
    what = f"{scenario.run.name}, {scenario.algorithm.name}, {text.several(parts.rounds, 'round')}"
    say(f"{scenario_file}: {what}")
    for grid in (outlook.groups(parts), outlook.fleet(parts), outlook.data(parts), outlook.models(parts)):
        table(grid)
    try:
        forecast = rehearse(parts)
    except RunError as error:
        if type(error) is not RunError:  # a bug, of fedsim or of a plugin, is no fault of the scenario
            raise
        raise UserError(f"{scenario_file}: its rehearsal failed: {error}") from error
    table(forecast.compute())
    table(forecast.frames())
    last, totals = forecast.last, forecast.totals
    traffic = last.traffic
    up, down = traffic.bytes_up + traffic.data_up, traffic.bytes_down + traffic.data_down
    total_up, total_down = totals.bytes_up + totals.data_up, totals.bytes_down + totals.data_down
    heading(f"Cost, from {text.several(forecast.rounds, 'rehearsed round')}")
    round_time = text.duration(last.ended_at_s - last.began_at_s)
    pairs(
        [
            ("a round", f"{round_time}, {text.size(up)} up, {text.size(down)} down, {last.asked} askings"),
            (
                text.several(forecast.planned, "round"),
                f"about {text.duration(forecast.simulated_s)}, {text.size(total_up)} up, "
                f"{text.size(total_down)} down, {text.count(totals.parameters_up + totals.parameters_down)} "
                "parameters",
            ),
        ]
    )
    if parts.fleet.is_traced:
        say("  links that follow traces were taken at the mean of a trace; a run takes them as they change")
    if who := ineligible.line(ineligible.ineligible(parts), len(parts.fleet)):
        say(f"  never asked: {who}")
    if last.dropped:
        causes = sorted(forecast.result.drops)
        hint = ", see participation.client_timeout" if "timeout" in causes else ""
        say(f"  {last.dropped} of {last.asked} askings were dropped: {', '.join(causes)}{hint}")
