import math
from dataclasses import replace
from typing import Any

from fedsim.studies.answer_tables import tables
from fedsim.studies.budgets import Budget, FrontPoint
from fedsim.studies.intervals import Interval, interval
from fedsim.studies.plan import Setting, StudyPlan, load_study
from fedsim.studies.study_answers import Answer

AVG, LOCAL = Setting("fedavg", "fedavg"), Setting("local", "local")


def answer(setting: Setting, time_s: list[float], *, seeds: int = 2, minus: float | None = None) -> Answer:
    costs: dict[str, Interval | None] = {
        "time_to_target_s": interval(time_s),
        "bytes_up_to_target": interval([1e6] * len(time_s)),
        "bytes_down_to_target": interval([2e6] * len(time_s)),
    }
    shares = ("best_accuracy", "final_accuracy", "final_accuracy_std", "final_accuracy_worst_decile")
    figures = (
        costs | dict.fromkeys(shares, interval([0.5] * seeds)) | {"final_accuracy_jain": interval([1.0])}
    )
    difference = None if minus is None else Interval(minus, minus - 0.25, minus + 0.25, 2)
    differences = {} if minus is None else dict.fromkeys(figures, difference)
    return Answer(setting, 0.05, seeds, len(time_s), {}, figures, differences)


def grids(plan: StudyPlan, rows: list[Answer], **fronts: list[FrontPoint]) -> dict[str, list[list[str]]]:
    return {grid.title: [list(row) for row in grid.rows] for grid in tables(plan, rows, fronts)}


def test_costs_are_shown_with_how_many_have_reached_the_target(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny | {"targets": [0.05]})
    found = grids(plan, [answer(AVG, [60.0, 60.0]), answer(LOCAL, [30.0], minus=-0.5)])
    assert found["to reach 5 %"] == [
        # The least, since local has not reached it with every seed.
        ["fedavg", "2 of 2", "1 min ± 0 s", "1 MB ± 0 B", "2 MB ± 0 B"],
        ["local", "1 of 2", "30 s", "1 MB", "2 MB"],
    ]
    assert found["difference to fedavg, to reach 5 %"] == [
        ["local", "2", "-500 ms ± 250 ms", "-0.5 B ± 0.25 B", "-0.5 B ± 0.25 B"]
    ]
    assert found["accuracy"][0] == ["fedavg", "2", *["50.0 ± 0.0"] * 4, "1"]
    difference = found["difference to fedavg, accuracy"]
    assert difference == [["local", "2", *["-50.0 ± 25.0"] * 4, "-0.5 ± 0.25"]]
    (note,) = tables(plan, [answer(AVG, []), answer(LOCAL, [], minus=-0.5)], {})[-2].notes
    assert "in percentage points, but for Jain's index; ±" in note


def test_energy_is_shown_where_it_is_known(tiny: dict[str, Any]) -> None:
    rows = [answer(AVG, [60.0, 60.0]), answer(LOCAL, [])]
    spent = {"joules_to_target": interval([1200.0] * 2)}
    rows[0] = replace(rows[0], figures={**rows[0].figures, **spent})
    rows[1] = replace(rows[1], figures={**rows[1].figures, "joules_to_target": None})
    grid = tables(load_study(tiny | {"targets": [0.05]}), rows, {})[0]
    assert grid.headings[-1] == "energy"
    assert [row[-1] for row in grid.rows] == ["1.2 kJ ± 0 J", "-"]


def test_notes_on_runs_are_below_the_accuracy_at_the_end(tiny: dict[str, Any]) -> None:
    rows = [answer(AVG, []), answer(LOCAL, [])]
    found = tables(load_study(tiny), rows, {}, notes_on_runs=["diverged: a"])
    assert [grid.title for grid in found if "diverged: a" in grid.notes] == ["accuracy"]


def test_the_least_is_marked_where_it_is_not_the_only_one(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny | {"targets": [0.05]})
    rows = [answer(AVG, [60.0, 60.0]), answer(LOCAL, [30.0, 30.0]), answer(LOCAL, [])]
    first, second, third = grids(plan, rows)["to reach 5 %"]
    assert (first[2], second[2]) == ("1 min ± 0 s", "30 s ± 0 s*")
    assert third[1:] == ["0 of 2", "-", "-", "-"]


def test_no_mean_is_marked_whose_interval_is_wider(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny | {"targets": [0.05]})
    rows = [answer(AVG, [60.0, 60.0]), answer(LOCAL, [1.0, 2.0])]
    assert [row[2] for row in grids(plan, rows)["to reach 5 %"]] == ["1 min ± 0 s", "1.5 s ± 6.35 s"]
    (grid, *_) = tables(plan, rows, {})
    assert not any("least" in note for note in grid.notes)
    nothing = [
        replace(row, figures={**row.figures, "bytes_up_to_target": interval([0.0] * 2)}) for row in rows[1:]
    ]
    grid, *_ = tables(plan, [rows[0], *nothing], {})
    assert grid.rows[1][3] == "0 B ± 0 B*"
    assert grid.notes[-1] == "* least of those that have reached it with every seed, unless ± exceeds it"


def test_no_variant_is_marked_of_which_fewer_runs_have_ended(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny | {"targets": [0.05]})
    rows = [answer(AVG, [60.0, 60.0]), answer(Setting("two", "local"), [70.0, 70.0])]
    rows.append(answer(LOCAL, [30.0], seeds=1))
    assert [row[2] for row in grids(plan, rows)["to reach 5 %"]] == [
        "1 min ± 0 s*",
        "1 min 10 s ± 0 s",
        "30 s",
    ]
    points = [FrontPoint(2.0, 0.9, LOCAL), FrontPoint(3.0, 0.95, AVG)]
    front = grids(plan, rows, time_s=points)["which is most accurate within a budget"]
    assert [row[3] for row in front] == ["local (1 of 2 seeds)", "fedavg"]


def test_accuracies_within_budgets_say_of_how_many_seeds_and_who_ended_before(tiny: dict[str, Any]) -> None:
    hour, least = Budget("time_s", 3600.0, True), Budget("bytes", 2e6, False)
    rows = []
    for setting, ended in ((AVG, 2), (LOCAL, 0)):
        one = answer(setting, [], minus=None if setting is AVG else -0.5)
        columns = {hour.accuracy_column: interval([0.5, 0.7]), least.accuracy_column: interval([0.5])}
        differences = {name: Interval(-0.5, -0.75, -0.25, 2) for name in columns} if setting is LOCAL else {}
        rows.append(
            replace(
                one,
                ended_before={hour.accuracy_column: ended, least.accuracy_column: 1},
                figures={**one.figures, **columns},
                differences={**one.differences, **differences},
            )
        )
    plan = load_study(tiny | {"targets": [0.05]})
    found = {grid.title: grid for grid in tables(plan, rows, {}, [hour, least])}
    grid = found["accuracy at equal time and at equal bytes"]
    assert list(grid.headings) == ["variant", "seeds", "% within\n1 h", "% within\n2 MB"]
    assert list(grid.rows[0]) == ["fedavg", "2", "60.0 ± 127.1", "50.0 (1 of 2)"]
    assert list(grid.notes) == [
        "accuracy: mean over clients, of the last evaluation within the budget",
        "2 MB: the least that a run has sent at its end, of those that send anything",
        "runs that ended before 1 h count as they were then: fedavg 2 of 2",
        "(1 of 2): of two seeds, one was evaluated within the budget",
        "±: half of the 95 % interval over seeds (Student's t)",
    ]
    grid = found["difference to fedavg, at equal time and at equal bytes"]
    assert [list(row) for row in grid.rows] == [["local", "-50.0 ± 25.0", "-50.0 ± 25.0"]]
    unknown = tables(plan, rows, {}, [Budget("time_s", math.nan, False)])
    assert not any("equal" in grid.title for grid in unknown)


def test_staleness_and_waste_are_shown_where_there_is_any(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny | {"targets": [0.05]})
    rows = [answer(AVG, []), answer(LOCAL, [])]
    none = {"staleness_mean": 0.0, "wasted_s": 0.0, "wasted_s_share": 0.0}
    some = {"staleness_mean": 1.5, "wasted_s": 90.0, "wasted_s_share": 0.25, "wasted_bytes_share": 0.125}
    for number, values in enumerate((none, some)):
        shown = {name: interval([value]) for name, value in values.items()}
        rows[number] = replace(rows[number], figures={"wasted_bytes": None, **rows[number].figures, **shown})
    rows[0] = replace(rows[0], figures={"wasted_bytes_share": None, **rows[0].figures})
    assert grids(plan, rows)["staleness and waste"] == [
        ["fedavg", "2", "0", "0 s", "0.0", "-", "-"],
        ["local", "2", "1.5", "1 min 30 s", "25.0", "-", "12.5"],
    ]
    assert "staleness and waste" not in grids(plan, [rows[0]])


def test_tables_say_in_words_what_plus_minus_means(tiny: dict[str, Any]) -> None:
    for more, words in (
        ({}, "95 % interval over seeds (Student's t)"),
        (
            {"interval": "bootstrap", "seeds": list(range(6))},
            "95 % interval over seeds (bootstrap; none of fewer than 6)",
        ),
    ):
        plan = load_study(tiny | {"targets": [0.05]} | more)
        rows = [answer(AVG, [60.0, 60.0]), answer(LOCAL, [30.0], minus=-0.5)]
        for grid in tables(plan, rows, {}):
            shown = any("±" in cell for row in grid.rows for cell in row)
            assert any(words in note for note in grid.notes) == shown


def test_without_a_baseline_there_are_no_differences(tiny: dict[str, Any]) -> None:
    plan = load_study({key: tiny[key] for key in tiny if key != "baseline"} | {"targets": []})
    assert list(grids(plan, [])) == ["accuracy", "which is most accurate within a budget"]


def test_budgets_say_who_takes_over_where(tiny: dict[str, Any]) -> None:
    points = [FrontPoint(0, 0.8, LOCAL), FrontPoint(2e6, 0.85, AVG), FrontPoint(9e6, 0.95, AVG)]
    found = grids(load_study(tiny), [], bytes=points, time_s=[FrontPoint(1, 0.2, AVG)])
    assert found["which is most accurate within a budget"] == [
        ["bytes", "0 B", "2 MB", "local", "80.0"],
        ["bytes", "2 MB", "", "fedavg", "85.0 to 95.0"],
        ["time", "1 s", "", "fedavg", "20.0"],
    ]


def test_the_values_of_the_grid_are_columns(tiny: dict[str, Any]) -> None:
    grid = {"training.lr": [0.1], "training.batch_size": [8]}
    plan = load_study(tiny | {"grid": grid, "targets": []})
    one = answer(Setting("fedavg", "fedavg", (0.1, 8)), [])
    (first, *_) = tables(plan, [Answer(one.setting, None, 2, 0, {}, one.figures, {})], {})
    assert list(first.headings)[:4] == ["variant", "lr", "batch\nsize", "seeds"]
    assert list(first.rows[0])[:4] == ["fedavg", "0.1", "8", "2"]
