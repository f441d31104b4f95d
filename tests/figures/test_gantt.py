"""Who did what when, and for whom rounds waited."""

import numpy as np
import pytest

from fedsim.figures.chart_types import BarChart, GanttChart
from fedsim.figures.gantt import MAX_CLIENTS, MAX_ROUNDS, first_rounds, gantt_figure, held_up_figure
from fedsim.report.cost_breakdown import Columns
from fedsim.runtime.records.dispatch_phases import PHASES
from tests.conftest import there
from tests.figures.conftest import chart_of

Span = tuple[int, int, int, str, float, float, str]
"""Client, dispatch, round, phase, began, ended, outcome."""

SPANS: list[Span] = [
    (0, 0, 1, "download", 0, 1, "merged"),
    (0, 0, 1, "compute", 1, 2, "merged"),
    (1, 0, 1, "download", 0, 1, "merged"),
    (1, 0, 1, "compute", 1, 4, "merged"),
    (1, 0, 1, "upload", 4, 5, "merged"),
    (0, 1, 2, "compute", 5, 8, "merged"),
    (1, 1, 2, "compute", 5, 6, "merged"),
]
ROUNDS = {"round": np.array([1, 2]), "began_at_s": np.array([0, 5.0]), "ended_at_s": np.array([5, 8.0])}
GROUPS = ["fast", "slow"]


def columns(spans: list[Span]) -> Columns:
    names = ("client", "dispatch", "round", "phase", "began_at_s", "ended_at_s", "outcome")
    kinds = (int, int, int, object, float, float, object)
    rows = zip(*spans, strict=True) if spans else [()] * len(names)
    found: Columns = {
        name: np.array(values, kind) for name, kind, values in zip(names, kinds, rows, strict=True)
    }
    return {**found, "is_exact": np.ones(len(spans), np.bool_)}


def test_rows_are_clients_the_slowest_first() -> None:
    figure = there(gantt_figure(columns(SPANS), ROUNDS, GROUPS))
    chart = chart_of(figure, GanttChart)
    assert chart.rows == ["client 1, slow", "client 0, fast"]  # 3 s on average, and 2.5 s
    assert chart.row.tolist() == [1, 1, 0, 0, 0, 1, 0]
    assert [chart.phases[one] for one in chart.phase.tolist()] == [span[3] for span in SPANS]
    assert chart.round.tolist() == [1, 1, 1, 1, 1, 2, 2]
    assert chart.round_ended_at_s.tolist() == [5, 8]
    assert figure.title == "Clients by phase, rounds 1 to 2"
    assert "client 1: 3 s; client 0: 2.5 s" in figure.text


def test_rounds_can_be_chosen() -> None:
    figure = there(gantt_figure(columns(SPANS), ROUNDS, GROUPS, (2, 9)))
    assert chart_of(figure, GanttChart).began_at_s.tolist() == [5, 5]
    assert figure.title == "Clients by phase, round 2"
    assert "Of 2 rounds 1 are shown; 'fedsim report RUN --rounds A:B' shows others." in figure.notes
    assert gantt_figure(columns(SPANS), ROUNDS, GROUPS, (7, 9)) is None


def test_a_dispatch_that_reaches_into_the_rounds_is_shown() -> None:
    late = columns([*SPANS, (2, 0, 1, "upload", 3, 7, "late")])
    figure = gantt_figure(late, ROUNDS, [*GROUPS, "slow"], (2, 2))
    assert chart_of(figure, GanttChart).rows[0] == "client 2, slow"


def test_of_many_clients_three_thirds_are_shown_and_of_many_rounds_the_first() -> None:
    count, num_rounds = 100, MAX_ROUNDS + 5
    spans: list[Span] = [
        (client, number, number + 1, "compute", 1000.0 * number, 1000.0 * number + client + 1, "merged")
        for client in range(count)
        for number in range(num_rounds)
    ]
    began_at_s = 1000.0 * np.arange(num_rounds)
    rounds = {"round": np.arange(1, num_rounds + 1), "began_at_s": began_at_s, "ended_at_s": began_at_s + 999}
    figure = there(gantt_figure(columns(spans), rounds, ["phones"] * count))
    chart = chart_of(figure, GanttChart)
    clients = [int(name.removeprefix("client ")) for name in chart.rows]
    assert len(clients) == MAX_CLIENTS
    assert clients[:10] == list(range(99, 89, -1))
    assert clients[-10:] == list(range(9, -1, -1))
    assert all(40 <= client < 60 for client in clients[10:20])
    assert len(chart.row) == MAX_CLIENTS * MAX_ROUNDS
    assert len(figure.notes) == 3


def test_the_slowest_of_each_round_are_shown() -> None:
    def lasts_s(client: int, turn: int) -> float:
        return 150 if (client, turn) == (70, 9) else client + 1

    spans: list[Span] = [
        (client, turn, turn + 1, "compute", 1000 * turn, 1000 * turn + lasts_s(client, turn), "late")
        for client in range(100)
        for turn in range(10)
    ]
    began_at_s = 1000.0 * np.arange(10)
    rounds = {"round": np.arange(1, 11), "began_at_s": began_at_s, "ended_at_s": began_at_s + 999}
    chart = chart_of(gantt_figure(columns(spans), rounds, ["phones"] * 100), GanttChart)
    # Of the whole run 21 clients are slower on average, but in round 10 client 70 is the slowest.
    assert "client 70" in chart.rows
    assert len(first_rounds(chart, 10).rows) == MAX_CLIENTS


def test_the_first_rounds_have_only_who_was_at_work_in_them() -> None:
    late: list[Span] = [*SPANS, (2, 0, 2, "compute", 5, 7, "merged")]
    whole = chart_of(gantt_figure(columns(late), ROUNDS, [*GROUPS, "idle"]), GanttChart)
    assert first_rounds(whole, 2).rows == whole.rows
    chart = first_rounds(whole, 1)
    assert chart.rows == ["client 1, slow", "client 0, fast"]
    assert chart.row.tolist() == [1, 1, 0, 0, 0]
    assert chart.ended_at_s.tolist() == [1, 2, 1, 4, 5]
    assert (chart.round_numbers.tolist(), chart.round_ended_at_s.tolist()) == ([1], [5])


def test_a_round_waits_for_its_last_client_alone() -> None:
    figure = there(held_up_figure(columns(SPANS), ROUNDS, GROUPS))
    # Client 1 from 2 to 5 in round 1: 2 s of computing and 1 s of uploading; client 0 from 6 to 8 in round 2.
    chart = chart_of(figure, BarChart)
    assert chart.bars == ["client 1, slow", "client 0, fast"]
    assert {part.label: part.values.tolist() for part in chart.parts} == {"compute": [2, 2], "upload": [1, 0]}
    assert figure.text.startswith("62.5 % of the time of rounds 1 to 2")
    assert figure.title == "For whom rounds waited, and why, rounds 1 to 2"


def test_only_the_rounds_that_are_shown_tell_who_was_waited_for() -> None:
    figure = there(held_up_figure(columns(SPANS), ROUNDS, GROUPS, (2, 2)))
    assert chart_of(figure, BarChart).bars == ["client 0, fast"]  # from 6 to 8
    assert figure.title == "For whom rounds waited, and why, round 2"
    assert figure.text.startswith("66.7 % of the time of round 2")


@pytest.mark.parametrize("spans", [[], SPANS[:2]])
def test_nobody_waits_where_nobody_else_is(spans: list[Span]) -> None:
    assert held_up_figure(columns(spans), ROUNDS, GROUPS) is None


def test_of_two_that_end_at_once_none_holds_the_other_up() -> None:
    tie: list[Span] = [(1, 1, 2, "compute", 5, 6, "merged"), (0, 1, 2, "compute", 5, 6, "merged")]
    figure = held_up_figure(columns([*SPANS[:5], *tie]), ROUNDS, GROUPS)
    assert chart_of(figure, BarChart).bars == ["client 1, slow"]
    assert held_up_figure(columns(tie), ROUNDS, GROUPS) is None


def test_what_comes_late_holds_nobody_up() -> None:
    late: list[Span] = [(0, 0, 1, "compute", 0, 1, "merged"), (1, 0, 1, "compute", 0, 9, "late")]
    assert held_up_figure(columns(late), ROUNDS, GROUPS) is None


def test_where_only_lengths_are_known_that_is_said() -> None:
    spans = {**columns(SPANS), "is_exact": np.zeros(len(SPANS), np.bool_)}
    figure = there(gantt_figure(spans, ROUNDS, GROUPS))
    assert any("not when" in note for note in figure.notes)


def test_without_dispatches_there_is_no_chart() -> None:
    assert gantt_figure(columns([]), ROUNDS, GROUPS) is None
    assert set(PHASES) >= {span[3] for span in SPANS}
