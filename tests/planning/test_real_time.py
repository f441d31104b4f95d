"""Forecasts of real time, with an executor whose jobs take known times on a clock of the test's."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedsim.engine.executors.base import Due, Executor, ExecutorConfig
from fedsim.engine.jobs import Evaluate, Fit, Job
from fedsim.engine.worker_state import Resources
from fedsim.planning import real_time
from fedsim.planning.real_time import (
    Forecast,
    RehearsedSetting,
    evaluation_jobs,
    forecast,
    rehearse_study,
    study_s,
)
from fedsim.planning.rehearsal import MAX_EXAMPLES, MeasuredPart, Work, record_job, rehearse
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.studies.plan import Setting, load_study

MakeParts = Callable[..., Parts]

FLOP_S, SAMPLE_S = 1e-9, 1e-4


class Timed(Executor):
    def __init__(self, workers: int = 1) -> None:
        super().__init__(ExecutorConfig(workers=workers))
        self.now_s = 0.0
        self.done: list[Job] = []
        self.is_closed = False

    def open(self, resources: Resources) -> None:
        self._resources = resources

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Any:
        self.done.append(job)
        if isinstance(job, Fit):
            assert step_flops is not None
            return job.num_steps * step_flops * FLOP_S
        assert isinstance(job, Evaluate)
        return sum(map(self._resources.num_samples, job.parts)) * SAMPLE_S

    def wait(self, promise: Any) -> Any:
        self.now_s += promise

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Timed:
    executor = Timed()
    monkeypatch.setattr(real_time, "perf_counter", lambda: executor.now_s)
    return executor


def test_the_time_of_all_jobs_follows_from_some_of_them(make_parts: MakeParts, timed: Timed) -> None:
    parts = replace(make_parts(rounds=5), executor=timed)
    rehearsal = rehearse(parts)
    (work,) = rehearsal.each.works
    (fits,) = work.values()
    assert fits.count == 4
    flops = sum(flops for _, _, flops, _ in rehearsal.jobs) / 2  # of one round
    assert fits.amount == pytest.approx(flops)
    measured = evaluation_jobs(parts, rehearsal.result)
    samples = len(parts.data.global_test) + sum(parts.data.num_samples(client, "test") for client in range(4))
    trials = real_time._Trials(parts, [work, measured])
    assert trials.seconds(work) == pytest.approx(flops * FLOP_S)
    assert trials.seconds(measured) == pytest.approx(samples * SAMPLE_S)
    assert trials.fit_seconds([work, measured]) == pytest.approx(flops * FLOP_S / 4)
    assert timed.is_closed


def test_large_jobs_are_tried_in_part_and_those_beside_each_other_count_once(
    make_parts: MakeParts, timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time, "MAX_FLOPS", 4e3)  # less than a batch
    monkeypatch.setattr(real_time, "MIN_TRIAL_S", 0.0)
    timed.config = ExecutorConfig(workers=3)
    parts = replace(make_parts(), executor=timed)
    rehearsal = rehearse(parts)
    (work,) = rehearsal.each.works
    (fits,) = work.values()
    trials = real_time._Trials(parts, [work])
    assert trials.seconds(work) == pytest.approx(fits.amount * FLOP_S / 3)
    assert [job.num_steps for job in timed.done if isinstance(job, Fit)] == [1, 1]
    (tried, *_) = timed.done
    assert isinstance(tried, Fit)
    assert 2 <= min(stream.batch_size for stream in tried.streams.values()) < parts.training.batch_size
    assert trials.fit_seconds([work]) == pytest.approx(fits.amount * FLOP_S / 4)  # of one core


def test_few_jobs_of_many_are_kept(make_parts: MakeParts) -> None:
    (work,) = rehearse(make_parts()).each.works
    ((job, _), *_) = next(iter(work.values())).examples
    many: Work = {}
    for _ in range(MAX_EXAMPLES + 6):
        record_job(many, job, 2.0)
    (kind,) = many.values()
    assert (kind.count, kind.amount, len(kind.examples)) == (
        MAX_EXAMPLES + 6,
        2 * (MAX_EXAMPLES + 6),
        MAX_EXAMPLES,
    )


def test_where_nothing_learns_only_the_simulation_takes_time(make_parts: MakeParts) -> None:
    parts = make_parts(rounds=10, executor="null")
    rehearsal = replace(rehearse(parts), once=MeasuredPart(10.0, []), each=MeasuredPart(0.5, []))
    found = forecast(parts, rehearsal)
    assert (found.once_s, found.round_s, found.evaluation_s, found.rounds) == (9.5, 0.5, 0.0, 10)
    assert found.run_s(2) == 10.5  # as long as the rehearsal took
    assert found.text == "about 14.5 s"


@pytest.mark.parametrize(
    ("settings", "between"), [({}, 1), ({"every": 4}, 4), ({"every": 0}, 0), ({"every_s": 1e-6}, 1)]
)
def test_evaluations_count_as_often_as_they_are_held(
    make_parts: MakeParts, settings: dict[str, Any], between: float
) -> None:
    parts = make_parts(executor="null", evaluation=EvaluationConfig(**settings))
    assert forecast(parts, rehearse(parts)).rounds_between == between


def test_a_run_is_what_happens_once_its_rounds_and_its_evaluations() -> None:
    one = Forecast(1.0, 2.0, 0.5, 10, 4)
    assert one.run_s(10) == 1 + 20 + 3 * 0.5  # after rounds 4, 8 and 10
    assert Forecast(1.0, 2.0, 0.5, 10, 0).run_s(10) == 21


def test_without_a_number_of_rounds_only_theirs_is_told() -> None:
    assert Forecast(1.0, 2.0, 0.5, None, 1).text == "about 2 s for a round, 500 ms for an evaluation"


AVG, LOCAL = Setting("fedavg", "fedavg"), Setting("local", "local")


@pytest.fixture
def study(tiny_scenario: str) -> dict[str, Any]:
    """Two variants with three rounds, and two seeds."""
    base = tomllib.loads(tiny_scenario) | {"run": {"rounds": 3}}
    return {"base": base, "seeds": [0, 1], "variant": [{"algorithm": "fedavg"}, {"algorithm": "local"}]}


def rehearsed(round_s: float, rounds: int | None = 3) -> Any:
    nothing: Any = None
    return RehearsedSetting(nothing, 1.0, Forecast(0.0, round_s, 0.0, rounds, 0))


def test_the_time_of_a_study_is_that_of_its_runs(study: dict[str, Any]) -> None:
    plan = load_study(study)
    known = {AVG: rehearsed(2.0), LOCAL: rehearsed(4.0)}
    assert study_s(plan, known, 1) == 2 * 7 + 2 * 13
    assert study_s(plan, known, 2) == 20
    assert study_s(plan, known, 99) == 13  # as long as the longest run


def test_trials_take_time_too_and_rounds_of_a_grid_their_own(study: dict[str, Any]) -> None:
    study["variant"].pop()
    plan = load_study(study | {"tune": {"seeds": [8, 9], "training.lr": [0.1, 0.2, 0.3]}})
    assert study_s(plan, {AVG: rehearsed(2.0)}, 1) == (2 + 6) * 7
    plan = load_study(study | {"seeds": [0], "grid": {"run.rounds": [2, 5]}})
    first = Setting("fedavg", "fedavg", (2,))
    assert study_s(plan, {first: rehearsed(2.0, None)}, 1) == 5 + 11


def test_how_long_it_takes_to_reach_an_accuracy_is_unknown(study: dict[str, Any]) -> None:
    del study["base"]["run"]
    plan = load_study(study | {"set": {"run.until": {"accuracy": 0.5}}})
    assert study_s(plan, {AVG: rehearsed(2.0, None), LOCAL: rehearsed(2.0, None)}, 1) is None


@pytest.mark.parametrize(("spent_s", "points"), [([1.0, 2.0], 2), ([99.0], 1)])
def test_each_variant_is_tried_and_further_points_while_there_is_time(
    study: dict[str, Any], monkeypatch: pytest.MonkeyPatch, spent_s: list[float], points: int
) -> None:
    clock_s = iter([0.0, *spent_s])
    monkeypatch.setattr(real_time, "process_time", lambda: next(clock_s))
    monkeypatch.setattr(real_time, "perf_counter", lambda: 0.0)
    rounds_s = iter([1.0, 50.0, 1.0, 50.0])
    monkeypatch.setattr(real_time, "tried", lambda *_: (Forecast(0.0, next(rounds_s), 0.0, 3, 0), ""))
    plan = load_study(study | {"grid": {"training.lr": [0.1, 0.2]}})
    known = rehearse_study(plan, "tiny")
    assert [(setting.variant, setting.point) for setting in known] == [
        (variant, (point,)) for variant in ("fedavg", "local") for point in (0.1, 0.2)[:points]
    ]
    assert all(setting.rehearsal.planned == 3 for setting in known.values())
    assert study_s(plan, known, 1) == 2 * 2 * (3 * 1 + 3 * 50)  # as often as there are seeds and points
