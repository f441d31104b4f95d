"""Forecasts of real time, with an executor whose jobs take known times on a clock of the test's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedsim.engine.executors.base import Due, Executor, ExecutorConfig
from fedsim.engine.jobs import Evaluate, Fit, Job
from fedsim.engine.worker_state import Resources
from fedsim.report import real_time
from fedsim.report.forecast import Forecast, forecast
from fedsim.report.real_time import MOST_TRIED, Kind, Work, add, evaluation, seconds
from fedsim.report.rehearsal import Share, rehearse
from fedsim.runtime.parts import EvaluationConfig, Parts

MakeParts = Callable[..., Parts]

FLOP_S, SAMPLE_S = 1e-9, 1e-4


class Timed(Executor):
    """Does nothing, and takes a known time for it."""

    def __init__(self, workers: int = 1) -> None:
        super().__init__(ExecutorConfig(workers=workers))
        self.now_s = 0.0
        self.done: list[Job] = []
        self.is_closed = False

    def open(self, resources: Resources) -> None:
        """Remember who knows how many samples there are."""
        self._resources = resources

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Any:
        """Give how long it takes."""
        self.done.append(job)
        if isinstance(job, Fit):
            assert step_flops is not None
            return job.num_steps * step_flops * FLOP_S
        assert isinstance(job, Evaluate)
        return sum(map(self._resources.num_samples, job.parts)) * SAMPLE_S

    def wait(self, promise: Any) -> Any:
        """Let that time pass."""
        self.now_s += promise

    def close(self) -> None:
        """Be closed."""
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
    measured = evaluation(parts, rehearsal.result)
    samples = len(parts.data.global_test) + sum(parts.data.num_samples(client, "test") for client in range(4))
    taken_s = seconds(parts, work, measured)
    assert taken_s == pytest.approx([flops * FLOP_S, samples * SAMPLE_S])
    assert timed.is_closed


def test_large_jobs_are_tried_in_part_and_those_beside_each_other_count_once(
    make_parts: MakeParts, timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time, "FIRST_FLOPS", 4e3)  # less than a batch
    monkeypatch.setattr(real_time, "TRIAL_S", 0.0)
    timed.config = ExecutorConfig(workers=3)
    parts = replace(make_parts(), executor=timed)
    rehearsal = rehearse(parts)
    (work,) = rehearsal.each.works
    (fits,) = work.values()
    (taken_s,) = seconds(parts, work)
    assert taken_s == pytest.approx(fits.amount * FLOP_S / 3)
    assert [job.num_steps for job in timed.done if isinstance(job, Fit)] == [1, 1]
    (tried, *_) = timed.done
    assert isinstance(tried, Fit)
    assert 2 <= min(stream.batch_size for stream in tried.streams.values()) < parts.training.batch_size
    taken_s, again_s = seconds(parts, evaluation(parts, rehearsal.result), work)
    assert taken_s > 0
    assert again_s == pytest.approx(fits.amount * FLOP_S / 3)


def test_few_jobs_of_many_are_kept(make_parts: MakeParts) -> None:
    (work,) = rehearse(make_parts()).each.works
    ((job, _), *_) = next(iter(work.values())).tried
    many: Work = {}
    for _ in range(MOST_TRIED + 6):
        add(many, job, 2.0)
    (kind,) = many.values()
    assert isinstance(kind, Kind)
    assert (kind.count, kind.amount, len(kind.tried)) == (MOST_TRIED + 6, 2 * (MOST_TRIED + 6), MOST_TRIED)


def test_where_nothing_learns_only_the_simulation_takes_time(make_parts: MakeParts) -> None:
    parts = make_parts(rounds=10, executor="null")
    rehearsal = replace(rehearse(parts), once=Share(10.0, []), each=Share(0.5, []))
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
