"""Jobs in virtual time; the last tests are on a real loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

from fedsim.clock import Trace, now_ns, sleep_for, wait
from fedsim.engine.cost import Effort
from fedsim.engine.engine import Engine
from fedsim.engine.executors.base import Due, Executor, ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.jobs import Call, Job
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.engine.slowdowns import Slowdowns
from fedsim.engine.worker_state import Resources
from fedsim.errors import JobError, UserError
from fedsim.models.flops import Operations
from fedsim.network.fault_settings import FaultConfig
from fedsim.network.faults import RunFault
from fedsim.rng import Key
from tests.engine.conftest import Lab

S = 1_000_000_000
LONG_S = 30


class Noting(Executor):
    """Does calls at once, or when waited for, and notes what it is asked."""

    lazy: ClassVar[bool] = True
    error: Exception | None = None

    def open(self, resources: Resources) -> None:
        self.submitted: list[Due] = []
        self.waited_at_ns: list[int] = []
        self.jobs: dict[Future[Any], Job] = {}
        self.closed = False

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted.append(due)
        self.jobs[future] = job
        return future

    def wait(self, future: Future[Any]) -> Any:
        self.waited_at_ns.append(now_ns())
        if self.error is not None:
            raise self.error
        job = self.jobs[future]
        assert isinstance(job, Call)
        return job.function(*job.arguments)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def noting() -> Noting:
    return Noting(ExecutorConfig())


@pytest.fixture
def trace() -> Trace:
    return Trace(keep=True)


@pytest.fixture
def engine(noting: Noting, resources: Resources, trace: Trace) -> Engine:
    return Engine(noting, resources, trace)


@pytest.fixture
def real(resources: Resources, trace: Trace) -> Iterator[Engine]:
    engine = Engine(THREADS(ExecutorConfig(workers=2)), resources, trace)
    yield engine
    engine.close()


def call(function: Callable[..., Any], *arguments: Any) -> Call:
    return Call(function, arguments, 5.0)


def run(engine: Engine, job: Job, duration_s: float, client: int = 0) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(result_of(engine, asked([(job, duration_s)], client)))


def asked(jobs: Sequence[tuple[Job, float]], client: int = 0, flops: float = 1e9) -> JobRequest:
    effort = Effort.of([(1, Operations(flops))])
    return JobRequest(client, client + 10, [TimedJob(job, effort, takes_s) for job, takes_s in jobs], str)


async def result_of(engine: Engine, request: JobRequest) -> Any:
    (result,) = await engine.run(request)
    return result


async def test_jobs_of_one_request_are_done_one_after_the_other(engine: Engine, trace: Trace) -> None:
    assert await engine.run(asked([(call(int, "1"), 2.0), (call(int, "2"), 3.0)])) == [1, 2]
    assert [(at_ns // S, kind, values[2]) for at_ns, kind, *values in trace.kept] == [
        (0, "job_start", "call"),
        (0, "job_start", "call"),
        (2, "job_end", "call"),
        (5, "job_end", "call"),
    ]


async def test_if_one_job_of_a_request_fails_the_rest_is_given_up(
    engine: Engine, noting: Noting, trace: Trace
) -> None:
    request = asked([(call(int, "1"), 1.0), (call(int, "x"), 1.0), (call(int, "3"), 1.0)])
    with pytest.raises(JobError, match="invalid literal"):
        await engine.run(request)
    assert now_ns() == 2 * S
    assert [values[-1] for _, kind, *values in trace.kept if kind == "job_end"] == [
        "done",
        "failed",
        "cancelled",
    ]
    assert [future.cancelled() for future in noting.jobs] == [False, False, True]


async def test_a_request_whose_jobs_were_done_beforehand_takes_its_time_and_no_work(
    engine: Engine, noting: Noting
) -> None:
    request = asked([(call(int, "1"), 2.0), (call(int, "2"), 3.0)])
    promises = engine.submit_ahead(request, [2 * S, 5 * S])
    results = engine.results_ahead(request, promises)
    ended: list[Any] = []
    engine.start(request, lambda *given: ended.append((now_ns(), *given)), results)
    await sleep_for(10.0)
    assert ended == [(5 * S, [1, 2], None)]
    assert noting.submitted == [(2 * S, 1), (5 * S, 2)]


@pytest.mark.parametrize(("restart", "ends_s"), [(False, [6, 9]), (True, [7, 10])])
async def test_jobs_stand_still_while_their_client_is_away(
    engine: Engine, trace: Trace, restart: bool, ends_s: list[int]
) -> None:
    task = asyncio.get_running_loop().create_task(
        engine.run(asked([(call(int, "1"), 2.0), (call(int, "2"), 3.0)]))
    )
    await sleep_for(1.0)
    engine.pause(0)
    await sleep_for(4.0)
    engine.resume(0, restart=restart)
    assert await task == [1, 2]
    assert [at_ns // S for at_ns, kind, *_ in trace.kept if kind == "job_end"] == ends_s


SLOW = FaultConfig.model_validate({"kind": "slow", "factor": 2, "at": "1 s", "for": "4 s"})


async def test_the_job_of_a_slow_device_ends_later_and_is_told(engine: Engine, trace: Trace) -> None:
    engine.slowdowns = Slowdowns([RunFault(SLOW, Key.root(0), None)])
    request = asked([(call(int, "1"), 0.5), (call(int, "2"), 1.5), (call(int, "3"), 3.0)])
    task = asyncio.get_running_loop().create_task(engine.run(request))
    await sleep_for(2.0)
    engine.pause(0)
    await sleep_for(1.0)
    engine.resume(0, restart=False)  # after 1.5 s of work
    assert await task == [1, 2, 3]
    assert [(at_ns / S, kind, values[-1]) for at_ns, kind, *values in trace.kept if kind != "job_start"] == [
        (0.5, "job_end", "done"),
        (2, "fault", "slow"),  # which shows as it stands still
        (4, "job_end", "done"),
        (6.5 + 1, "fault", "slow"),  # half a second's work until 5 s, then full speed
        (6.5 + 1, "job_end", "done"),
    ]


async def test_a_cancelled_job_was_slow_if_it_was_until_then(engine: Engine, trace: Trace) -> None:
    engine.slowdowns = Slowdowns([RunFault(SLOW, Key.root(0), None)])
    for at_s in (0.5, 1.5):
        task = run(engine, call(int, "1"), 5.0)
        await sleep_for(at_s - now_ns() / S)
        task.cancel()
        await sleep_for(0.0)
    assert [kind for _, kind, *_ in trace.kept] == ["job_start", "job_end", "job_start", "fault", "job_end"]


async def test_a_result_is_waited_for_at_the_very_instant_at_which_it_is_due(
    engine: Engine, noting: Noting
) -> None:
    assert await run(engine, call(int, "3"), 1.25) == 3
    assert now_ns() == 1.25 * S
    assert noting.submitted == [(int(1.25 * S), 1)]
    assert noting.waited_at_ns == [int(1.25 * S)]
    assert await run(engine, call(int, "4"), 0.0) == 4
    assert now_ns() == 1.25 * S


async def test_of_one_instant_ordinary_events_come_first_and_deadlines_last(engine: Engine) -> None:
    order: list[str] = []

    async def work() -> None:
        assert await wait([run(engine, call(order.append, "result"), 2.0)], timeout=2.0)
        order.append("in time")

    async def late() -> None:
        job = run(engine, call(order.append, "never"), 2.000000001)
        assert not await wait([job], timeout=2.0)
        job.cancel()
        order.append("too late")

    tasks = [asyncio.get_running_loop().create_task(one()) for one in (work, late)]
    await sleep_for(1.0)
    asyncio.get_running_loop().call_later(1.0, order.append, "ordinary")
    await asyncio.gather(*tasks)
    assert order == ["ordinary", "result", "in time", "too late"]


async def test_results_of_one_instant_come_in_the_order_of_submission(engine: Engine) -> None:
    order: list[int] = []
    tasks = [run(engine, call(order.append, number), 1.0) for number in (3, 1, 2)]
    await asyncio.gather(*tasks)
    assert order == [3, 1, 2]


async def test_jobs_are_handed_on_with_their_due_instants(engine: Engine, noting: Noting) -> None:
    await asyncio.gather(*(run(engine, call(int, "1"), duration_s) for duration_s in (3.0, 1.0, 2.0)))
    assert noting.submitted == [(3 * S, 1), (1 * S, 2), (2 * S, 3)]
    assert noting.waited_at_ns == [1 * S, 2 * S, 3 * S]


async def test_a_cancelled_job_is_abandoned(engine: Engine, noting: Noting, trace: Trace) -> None:
    task = run(engine, call(int, "1"), 5.0)
    await sleep_for(1.0)
    task.cancel()
    await sleep_for(10.0)
    assert task.cancelled()
    assert noting.waited_at_ns == []
    assert [future.cancelled() for future in noting.jobs] == [True]
    assert [(at_ns, *rest) for at_ns, _, *rest in trace.kept] == [
        (0, 0, 10, "call", 1e9, 5.0),
        (S, 0, 10, "call", "cancelled"),
    ]


async def test_an_error_surfaces_when_it_is_due_and_names_its_cause(engine: Engine) -> None:
    task = run(engine, call(int, "x"), 2.0)
    with pytest.raises(JobError, match="a call job failed: ValueError: invalid literal") as caught:
        await task
    assert now_ns() == 2 * S
    assert isinstance(caught.value.__cause__, ValueError)


async def test_what_an_executor_says_of_a_job_names_the_job_too(engine: Engine, noting: Noting) -> None:
    noting.error = JobError("five actors have died at it")
    with pytest.raises(JobError, match=r"^a call job failed: five actors have died at it$"):
        await run(engine, call(int, "1"), 2.0)


async def test_an_error_of_real_work_that_failed_long_ago_surfaces_when_due(real: Engine) -> None:
    done = threading.Event()

    def fail() -> None:
        done.set()
        raise KeyError("lost")

    task = run(real, call(fail), 3.0)
    await asyncio.sleep(0)
    assert done.wait(LONG_S)
    await sleep_for(2.0)
    assert not task.done()
    with pytest.raises(JobError, match="KeyError: 'lost'"):
        await task
    assert now_ns() == 3 * S


def _refuse() -> None:
    raise UserError("write it otherwise")


async def test_an_error_of_fedsim_s_own_comes_as_it_is(engine: Engine) -> None:
    with pytest.raises(UserError, match="write it otherwise") as caught:
        await run(engine, call(_refuse), 1.0)
    assert caught.value.__cause__ is None


async def test_the_trace_tells_when_jobs_start_and_end(engine: Engine, trace: Trace) -> None:
    failing = run(engine, call(int, "x"), 2.0, client=1)
    await run(engine, call(int, "1"), 1.0)
    with pytest.raises(JobError):
        await failing
    assert trace.kept == [
        (0, "job_start", 1, 11, "call", 1e9, 2.0),
        (0, "job_start", 0, 10, "call", 1e9, 1.0),
        (S, "job_end", 0, 10, "call", "done"),
        (2 * S, "job_end", 1, 11, "call", "failed"),
    ]


async def test_an_observer_takes_no_time_and_leaves_no_trace(engine: Engine, trace: Trace) -> None:
    await sleep_for(1.0)
    assert await engine.observe(call(int, "7")) == 7
    assert now_ns() == S
    assert trace.count == 0
    with pytest.raises(JobError):
        await engine.observe(call(int, "x"))


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
async def test_a_duration_is_finite_and_not_negative(engine: Engine, trace: Trace, duration_s: float) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        await run(engine, call(int, "1"), duration_s)
    assert trace.count == 0


async def test_what_nobody_can_look_at_is_given_up_without_the_collector(lab: Lab, trace: Trace) -> None:
    executor = THREADS(ExecutorConfig())
    engine = Engine(executor, lab.resources, trace)
    gc.disable()
    try:
        fitted = await run(engine, lab.make_fit(num_steps=1), 1.0)
        del fitted
        kept = await run(engine, lab.make_fit(num_steps=1), 1.0)
        assert kept.model.is_finite()
    finally:
        gc.enable()
        engine.close()
    assert {kind: sum(ways.values()) for kind, ways in executor.jobs_done.items()} == {"fit": 1}


async def test_what_is_looked_at_after_the_end_is_told_so(lab: Lab, trace: Trace) -> None:
    engine = Engine(THREADS(ExecutorConfig()), lab.resources, trace)
    fitted = await run(engine, lab.make_fit(num_steps=1), 1.0)
    engine.close()
    with pytest.raises(JobError, match="never computed, because nobody had looked at its result"):
        fitted.model.compute()


def test_closing_closes_the_executor(engine: Engine, noting: Noting) -> None:
    engine.close()
    assert noting.closed


# On a real loop


def test_a_real_loop_awaits_the_result_and_is_never_blocked(real: Engine, trace: Trace) -> None:
    opened = threading.Event()

    async def main() -> tuple[str, list[str]]:
        order: list[str] = []
        task = run(real, call(_wait_for, opened), 1e6)
        await asyncio.sleep(0)
        order.append("the loop is free")
        opened.set()
        order.append(await task)
        return "done", order

    # An hour of virtual time plays no part here.
    assert asyncio.run(asyncio.wait_for(main(), LONG_S)) == ("done", ["the loop is free", "through"])
    assert [record[1] for record in trace.kept] == ["job_start", "job_end"]


def _wait_for(opened: threading.Event) -> str:
    assert opened.wait(LONG_S)
    return "through"


@pytest.mark.parametrize(
    ("job", "error", "match"),
    [
        (call(int, "x"), JobError, "a call job failed: ValueError"),
        (call(next, iter(())), JobError, "StopIteration"),
        (call(_refuse), UserError, "write it otherwise"),
    ],
    ids=["value", "stop", "own"],
)
def test_errors_on_a_real_loop_are_the_same(
    real: Engine, job: Job, error: type[Exception], match: str
) -> None:
    async def main() -> None:
        await asyncio.wait_for(run(real, job, 0.0), LONG_S)

    with pytest.raises(error, match=match) as caught:
        asyncio.run(main())
    assert (caught.value.__cause__ is None) is (error is UserError)


def test_a_cancelled_job_that_has_not_started_never_runs_on_a_real_loop_either(
    resources: Resources, trace: Trace
) -> None:
    engine = Engine(THREADS(ExecutorConfig(workers=1)), resources, trace)
    opened, ran = threading.Event(), list[int]()

    async def main() -> None:
        first = run(engine, call(_wait_for, opened), 0.0)
        second = run(engine, call(ran.append, 1), 0.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        opened.set()
        await first

    try:
        asyncio.run(asyncio.wait_for(main(), LONG_S))
    finally:
        engine.close()
    assert ran == []
    assert [record[-1] for record in trace.kept if record[1] == "job_end"] == ["cancelled", "done"]
