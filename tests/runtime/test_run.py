"""A whole run: what it returns, and how it fails."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest

from fedsim.algorithms.base import Predictor
from fedsim.clock import Trace, now_s
from fedsim.engine.engine import JOB_END
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.errors import InvariantError, JobError
from fedsim.fleet import Fleet
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.network.max_min_star import MaxMinStar
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import run


def _boom() -> None:
    raise ZeroDivisionError("of nothing")


def _workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("fedsim-worker")]


# Results


def test_final_is_the_last_and_best_the_highest_of_all_measured(world: Any) -> None:
    marks = iter([1, 4, 2])
    oracle = world.Oracle()
    # One client with a personal model only: one evaluation a round.
    oracle._score = lambda samples: world.by_client((next(marks), 4))(samples)
    algorithm = world.Scripted(models_of=lambda observer, server, client: {"personal": _predictor(observer)})
    result, _ = world.play(algorithm, sizes=(1,), rounds=3, executor=oracle)
    assert [row.accuracy.mean for row in result.rounds] == [0.25, 1.0, 0.5]
    assert (result.final.mean, result.best) == (0.5, 1.0)


def _predictor(observer: Any) -> Any:
    return Predictor(observer.initial_model())


def test_a_run_that_is_over_keeps_nothing_but_its_result(world: Any) -> None:
    # A run is made of cycles, which hold its data set too.
    recorders = list[ref[Any]]()
    trace, parts = Trace(keep=True), world.make_parts(world.Scripted())
    result = run(parts, trace=trace, observe=lambda recorder, parts: recorders.append(ref(recorder)))
    assert [recorder() for recorder in recorders] == [None]
    assert len(result.rounds) == 1
    assert trace.count > 0


def test_a_run_of_no_rounds_leaves_nothing(world: Any) -> None:
    result, trace = world.play(world.Scripted(), rounds=0)
    assert (result.rounds, result.simulated_s, trace) == ((), 0.0, [])
    assert len(result.model_hash) == 32


def test_the_trace_of_a_round(world: Any) -> None:
    _, trace = world.play(world.Scripted(), sizes=(1,))
    at = [(record[0] / 1e9, record[1]) for record in trace]
    assert at == [
        (0.0, "dispatch"),
        (0.0, "transfer_start"),
        (1.0, "transfer_end"),
        (1.0, "job_start"),
        (4.0, "job_end"),
        (4.0, "transfer_start"),
        (5.0, "transfer_end"),
        (5.0, "merge"),
        (5.0, "round_end"),
    ]
    assert trace[0][2:] == (0, 0, 1, "talk", 0)
    assert trace[-2][2:] == (1, "talk", 1, (0,), (0,))
    assert trace[-1][2:] == (1, 1, 1)


def test_verify_changes_no_result(world: Any) -> None:
    lost = [(1, -1, 0)]
    hashes = set()
    for verify in (False, True):
        parts = world.make_parts(world.Scripted(), rounds=2, network=world.Wires(lost=lost), verify=verify)
        result = run(parts)
        hashes.add((result.trace_hash, result.model_hash, result.totals))
    assert len(hashes) == 1


@pytest.mark.parametrize("verify", [True, False])
def test_a_trace_that_does_not_add_up_fails_a_verified_run(verify: bool, world: Any) -> None:
    trace = Trace(keep=True)

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        trace.record(JOB_END, client.client, 9, "fit", "done")
        return state, world.word()

    parts = world.make_parts(world.Scripted(local=local), verify=verify)
    if verify:
        with pytest.raises(InvariantError, match=r"\('job', 0, 9, 'fit'\) ended at 1000000000 ns without"):
            run(parts, trace=trace)
    else:
        assert run(parts, trace=trace).rounds[0].merged == 3


# Failures


def test_an_error_in_a_clients_hook_ends_the_run_and_everybody_elses_work(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[tuple[int, float]] = []

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        try:
            await client.call(world.nothing, flops=2.0 if client.client == 1 else 5.0)
        finally:
            ended.append((client.client, now_s()))
        raise LookupError("of client 1")

    with pytest.raises(LookupError, match="of client 1"):
        world.play(world.Scripted(local=local))
    # The others are ended at once, in the order in which they began.
    assert ended == [(1, 3.0), (0, 3.0), (2, 3.0)]
    assert caplog.records == []


@pytest.mark.parametrize("hook", ["instruct", "merge", "vet", "join", "start"])
def test_an_error_in_any_hook_comes_out_as_it_is(hook: str, world: Any) -> None:
    def fail(*arguments: Any) -> Any:
        raise LookupError(hook)

    async def fail_later(*arguments: Any) -> Any:
        fail()

    with pytest.raises(LookupError, match=hook):
        world.play(world.Scripted(**{hook: fail_later if hook in ("instruct", "merge") else fail}))


def test_a_job_that_raises_is_a_job_error_with_its_cause(world: Any) -> None:
    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        await client.call(_boom, flops=1.0)

    with pytest.raises(JobError, match="of nothing") as caught:
        world.play(world.Scripted(local=local))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_ctrl_c_comes_straight_out_and_the_workers_end(
    world: Any, caplog: pytest.LogCaptureFixture, collect: Callable[[], int]
) -> None:
    def interrupt(row: RoundRow) -> None:
        assert len(_workers()) == 2
        raise KeyboardInterrupt

    parts = world.make_parts(world.Scripted(), rounds=3, executor=THREADS(ExecutorConfig(workers=2)))
    with pytest.raises(KeyboardInterrupt):
        run(parts, watch=interrupt)
    assert _workers() == []
    collect()  # a task whose exception nobody has seen complains when it is deleted
    assert caplog.records == []


def test_the_workers_end_with_the_run_and_with_its_failure(world: Any) -> None:
    run(world.make_parts(world.Scripted(), executor=THREADS(ExecutorConfig(workers=2))))
    assert _workers() == []

    def fail(*arguments: Any) -> Any:
        raise LookupError

    parts = world.make_parts(world.Scripted(join=fail), executor=THREADS(ExecutorConfig(workers=2)))
    with pytest.raises(LookupError):
        run(parts)
    assert _workers() == []


def test_verify_wants_a_trace_that_is_kept(world: Any) -> None:
    with pytest.raises(ValueError, match="it has to be kept"):
        run(world.make_parts(world.Scripted(), verify=True), trace=Trace())


# Hooks that change what they are given


@pytest.mark.parametrize("guilty", ["instruct", "local", "merge", "vet", "models_of"])
@pytest.mark.parametrize("verify", [True, False])
def test_a_hook_that_changes_its_arguments_is_found_under_verify(
    guilty: str, verify: bool, world: Any
) -> None:
    server_state: list[int] = []

    def hook(step: str, result: Callable[[Any, Any], Any]) -> Any:
        async def scribble(exchange: str, party: Any, state: Any, given: Any) -> Any:
            if step == guilty:
                state.append(1)
            return result(state, given)

        return scribble

    algorithm = world.Scripted(
        instruct=hook("instruct", lambda state, cohort: (state, world.broadcast(cohort, world.word()))),
        local=hook("local", lambda state, message: (state, world.word())),
        merge=hook("merge", lambda state, replies: state),
        vet=lambda reply: server_state.append(1) if guilty == "vet" else None,
        models_of=lambda observer, state, _: (state.append(1) if guilty == "models_of" else None) or {},
        start=lambda server: server_state,
        join=lambda client: [],
    )
    if not verify:
        world.play(algorithm, verify=False)
        return
    name = guilty if guilty in ("vet", "models_of") else f"{guilty}_talk"
    with pytest.raises(InvariantError, match=f"hook {name} changed its argument 0, a list"):
        world.play(algorithm)


def test_arrays_that_arrive_cannot_be_written_into(world: Any) -> None:
    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        message.values[0] = 0

    with pytest.raises(ValueError, match="read-only"):
        world.play(world.Scripted(local=local))


def test_a_link_that_carries_too_much_ends_a_verified_run(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fair_bps = MaxMinStar._fair_bps
    monkeypatch.setattr(MaxMinStar, "_fair_bps", lambda star: 2 * fair_bps(star))
    parts = world.make_parts(world.Scripted(), sizes=(2,) * 40, network=FLUID(FLUID.Config()))
    slow = parts.fleet.server._replace(up_bps=1000.0)
    parts = replace(parts, fleet=Fleet(parts.fleet.groups, slow, "linear"), client_timeout_s=1e6)
    run(replace(parts, verify=False))
    with pytest.raises(
        InvariantError, match=r"the server's link carries 2000.0 bit/s at 0.0 s, its capacity"
    ):
        run(parts)
