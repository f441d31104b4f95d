"""What a live page shows of a run: before it begins, at each round, and when it has ended or failed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsim import clock
from fedsim.bus import Header, Ledger, Totals
from fedsim.clock import Trace
from fedsim.figures.chart_types import Section
from fedsim.page.live_reader import Counts, RunReader
from fedsim.page.live_run import LiveRun
from fedsim.page.live_snapshot import Rates, Snapshot, panels
from fedsim.page.page_content import Page
from fedsim.page.write_report import page_of
from fedsim.report.record_run import record
from fedsim.report.run_text import PASSED, SIMULATED
from fedsim.runtime.clients.interrupted_work import LEAVE, RETURN
from fedsim.runtime.records.recorder import Recorder, silent
from fedsim.runtime.server.actor import REJECT
from fedsim.runtime.server.open_dispatches import DISPATCH, DROP, LATE
from fedsim.scenario import Plan, load_scenario

Make = Callable[..., Plan]


@pytest.fixture
def make(tiny_scenario: str, tmp_path: Path) -> Make:
    """Return what makes the plan of a tiny run, with some values replaced."""
    file = tmp_path / "tiny.toml"
    file.write_text(tiny_scenario)

    def plan(*overrides: str) -> Plan:
        return Plan.of(load_scenario(file, overrides), "tiny")

    return plan


def looks_at(plan: Plan, folder: Path, live: LiveRun) -> list[Snapshot]:
    """Do a run; return what is seen at the end of each round."""
    seen = list[Snapshot]()
    record(plan, folder, watch=lambda row: seen.append(live.snapshot()), observe=live.observe)
    return seen


def cells(look: Snapshot, name: str) -> dict[str, str]:
    """Return the second column of a table of the page, by the first."""
    tables = [*([look.page.table] if look.page.table else []), *look.page.tables]
    (table,) = [one.table for one in tables if one.name == name]
    return {row[0]: row[1] for row in table.rows}


def test_a_run_from_its_start_to_its_end(make: Make, tmp_path: Path) -> None:
    live = LiveRun("tiny")
    before = live.snapshot()
    assert (before.state, before.share) == ("waiting", None)
    assert before.page.answer == "It is about to begin."
    assert LiveRun("tiny", passed=PASSED).snapshot().page.answer == "Waiting for clients to join."
    first, second = looks_at(make(), tmp_path / "run", live)
    assert (first.state, first.share) == ("running", 0.5)
    assert first.page.answer.startswith("1 of 2 rounds, ")
    assert first.page.answer.endswith(" left.")
    assert second.share == 1.0
    assert "accuracy" in second.page.answer
    assert second.page.answer.endswith("What is left is being computed and written.")
    assert cells(second, "so-far")["dispatches"] == "8"
    assert cells(second, "so-far")["replies merged"] == "8"
    (events,) = [table.table for table in second.page.tables]
    assert events.rows[0][1] == "round 2 has ended: 4 asked, 4 merged"
    assert [section.name for section in second.page.sections] == ["now", "quality", "taking-part"]
    assert "Of 4 clients, 4 are idle." in second.page.sections[0].figures[0].text
    live.ended(lambda: Page("the report", "run", "All is well."))
    assert live.snapshot() == Snapshot(Page("the report", "run", "All is well."), "ended", 1.0)


@pytest.mark.parametrize(("passed", "is_said"), [(SIMULATED, True), (PASSED, False)])
def test_time_over_sockets_is_not_called_simulated(
    make: Make, tmp_path: Path, passed: str, is_said: bool
) -> None:
    look = looks_at(make(), tmp_path / "run", LiveRun("tiny", passed=passed))[-1]
    assert ("simulated" in " ".join(panels(look).values())) == is_said


def test_figures_are_made_anew_only_after_a_round(make: Make, tmp_path: Path) -> None:
    live = LiveRun("tiny")
    one, other = list[Section](), list[Section]()

    def watch(row: Any) -> None:
        one.append(live.snapshot().page.sections[1])
        other.append(live.snapshot().page.sections[1])

    record(make(), tmp_path / "run", watch=watch, observe=live.observe)
    assert one[0] is other[0]
    assert one[0] is not one[1]


def test_a_report_that_cannot_be_made_is_told() -> None:
    live = LiveRun("tiny")
    live.ended(lambda: page_of(Path("gone")))
    look = live.snapshot()
    assert look.state == "ended"
    assert "gone holds no results" in look.page.answer


def test_a_run_that_fails(make: Make, tmp_path: Path) -> None:
    live = LiveRun("tiny")
    live.failed("It was interrupted.")
    assert (live.snapshot().state, live.snapshot().page.answer) == ("failed", "It was interrupted.")
    live = LiveRun("tiny")
    looks_at(make(), tmp_path / "run", live)
    live.failed("It was interrupted.")
    assert live.snapshot().state == "failed"
    assert live.snapshot().page.answer.startswith("2 of 2 rounds")
    assert live.snapshot().page.answer.endswith("It was interrupted.")


def test_a_failure_after_the_end_changes_nothing() -> None:
    live = LiveRun("tiny")
    live.ended(lambda: Page("the report", "run", ""))
    live.failed("printing failed")
    assert live.snapshot().state == "ended"


def test_what_nobody_knows_has_no_share(make: Make) -> None:
    parts = replace(make("run.until={accuracy = 0.99}").parts, rounds=None)

    async def main() -> float | None:
        run = RunReader(Recorder(4, Ledger(), Trace(), silent()), parts)
        return run.share(run.counts())

    assert clock.run(main()) is None


def test_shares_are_those_of_the_budget_that_is_nearest(make: Make) -> None:
    """Of 10 s passed and 100 bytes sent, 1 min and 400 B are budgets: a sixth, and a quarter."""
    ledger = Ledger()
    recorder = Recorder(4, ledger, Trace(), silent())
    parts = make("run.until={simulated = '1 min', bytes = '400 B'}").parts

    async def main() -> float | None:
        run = RunReader(recorder, parts)
        await clock.sleep_for(10.0)
        ledger.sent(0, Header(-1, 0, 1, "talk", 0, 0), False, ("word", 100, 3, False, 0))
        return run.share(run.counts())

    assert clock.run(main()) == 0.25


def test_events_are_told_in_words_newest_first_and_few(make: Make) -> None:
    trace = Trace()
    recorder = Recorder(4, Ledger(), trace, silent())

    async def main() -> RunReader:
        run = RunReader(recorder, make().parts)
        for client in range(3):
            trace.record(DISPATCH, client, 0, 1, "talk", 0)
        await clock.sleep_for(1.0)
        trace.record(LEAVE, 0, "resume")
        trace.record(RETURN, 0)
        trace.record(DROP, 0, 0, "timeout <b>")
        trace.record(LATE, 0, 0)
        await clock.sleep_for(1.0)
        trace.record(REJECT, 1, 0, "rubbish")
        return run

    run = clock.run(main())
    assert run.events.rows() == [("1 s", "client 0 came back"), ("1 s", "client 0 left while at work")]
    assert run.drops.rows() == [
        ("2 s", "a reply of client 1 was rejected: rubbish"),
        ("1 s", "a reply of client 0 came too late"),
        ("1 s", "no reply of client 0: timeout <b>"),
    ]

    async def many() -> None:
        for _ in range(100):
            trace.record(RETURN, 0)

    clock.run(many())
    assert len(run.events.rows()) == 15


def counts(real_s: float, simulated_s: float, events: int) -> Counts:
    return Counts(real_s, simulated_s, events, {"asked": events // 10}, Totals(bytes_up=1000 * events))


def test_rates_are_means_over_the_last_looks() -> None:
    """From 10 to 14 s of real time, 2 s simulated and 40 events a second pass; before, ten times as many."""
    rates = Rates()
    first = rates.table(counts(1.0, 0.0, 0), "simulated").table
    assert {row[2] for row in first.rows} == {"-", ""}
    for step in range(10):
        rates.table(counts(10.0 + 0.4 * step, 100.0 + 0.8 * step, 4000 + 16 * step), "simulated")
    rows = {row[0]: row[1:] for row in rates.table(counts(14.0, 108.0, 4160), "simulated").table.rows}
    assert rows["time simulated"] == ("1 min 48 s", "2 s")
    assert rows["events"] == ("4160", "40")
    assert rows["dispatches"] == ("416", "4")
    assert rows["bytes up"] == ("4.16 MB", "40 kB")
    assert rows["dropped"] == ("0", "")


def test_a_look_in_panels_is_the_same_page(make: Make, tmp_path: Path) -> None:
    live = LiveRun("tiny <script>")
    *_, look = looks_at(make(), tmp_path / "run", live)
    made = {name: json.loads(text) for name, text in panels(look).items()}
    outline = made["outline"]
    figures = [name for section in outline["sections"] for name in section["figures"]]
    tables = [outline["table"], *outline["tables"]]
    assert made.keys() == {
        "progress",
        "words",
        "outline",
        *(f"figure {name}" for name in figures),
        *(f"table {name}" for name in tables),
    }
    assert made["progress"] == {"state": "running", "share": 1.0}
    assert made["words"]["title"] == "tiny <script>"
    assert all("\n" not in text for text in panels(look).values()), "a line is an event's end"
