"""Actors of one run: who does which jobs, what becomes of them when an actor dies, and when to give up.

All is decided in one thread, which gets what happens as a queue of functions to call. The loop's thread puts
jobs there and waits for their results. Another thread looks whether the cluster is there: where it is gone, a
call of Ray may never return.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from fedsim.engine.cluster.actors import Done, Greeting, LostError, RayActors
from fedsim.engine.cluster.call_sizes import CALL_S, Rates, sizes
from fedsim.engine.cluster.packing import Failure, Loans, PackedResult, packed, plain, trees_of
from fedsim.engine.job_times import JobTimes
from fedsim.engine.jobs import Job
from fedsim.errors import FedsimError, JobError, RunError
from fedsim.params import Tree
from fedsim.quoting import MAX_SHOWN, shortened

AHEAD = 2
"""Calls that an actor has at once: one that it does, and one that it finds when it has done that."""

MAX_LOST = 5
"""Actors that may die at a job before it counts as the reason."""

MAX_LENT_SHARE = 0.25
"""Share of the object store that results may use beyond the call that gave them."""

CHECK_S = 2.0
"""Time between two looks whether the cluster is there, s."""

CALL_TIMEOUT_S = 20.0
"""A call of Ray that has not returned after so long never will, s: the cluster is gone."""


class RemoteJob:
    """A job on its way to an actor; jobs of a ``kind`` take as long for each of their ``amount``."""

    __slots__ = ("amount", "future", "job", "key", "kind", "lost", "takes_s", "trees")

    def __init__(self, job: Job, key: Hashable | None, kind: tuple[Hashable, ...], amount: float) -> None:
        self.job: Job | None = job  # None once nobody wants it
        self.key = key
        self.kind = kind
        self.amount = amount
        self.future: Future[Any] = Future()
        self.takes_s = 0.0
        self.lost = 0
        self.trees: Sequence[Tree] = ()

    def cancel(self) -> bool:
        """Give it up, unless it was sent to an actor."""
        if not self.future.cancel():
            return False
        self.job = None
        return True


@dataclass(eq=False, slots=True)
class _Stored:
    """A tree that travels apart, and how many jobs at hand begin from it."""

    tree: Tree
    jobs: int = 0
    reference: Any = None


@dataclass(eq=False, slots=True)
class _Call:
    """Jobs for one actor, all of one kind."""

    jobs: list[RemoteJob]

    @property
    def takes_s(self) -> float:
        return sum(remote.takes_s for remote in self.jobs)


@dataclass(eq=False, slots=True)
class _Actor:
    """An actor, and the calls that it has, in the order in which it does them."""

    number: int
    handle: Any
    host: str = ""
    calls: list[_Call] = field(default_factory=list)


class ActorPool:
    """Does jobs on actors.

    Args:
        actors: Starts actors and talks to them.
        num_actors: How many.
        accept: Called with each actor's greeting; raises what ends the run, if the actor is not to work here.
        patience_s: How long there may be no actor before the run ends, s.

    Attributes:
        jobs_done: How many jobs of each kind were done in which way.
        lost: Actors that have died.
        repeated: Jobs that were done again for that.
        hosts: How many actors each machine has had.
        ready: Set when there is an actor; raises why there is none.
    """

    def __init__(
        self, actors: RayActors, num_actors: int, accept: Callable[[Greeting], None], patience_s: float
    ) -> None:
        self.jobs_done: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.lost = self.repeated = 0
        self.hosts = Counter[str]()
        self.ready: Future[None] = Future()
        self.job_times: JobTimes | None = None
        self._cluster, self._num_actors, self._accept = actors, num_actors, accept
        self._patience_s = patience_s
        self._inbox = SimpleQueue[Callable[[], None]]()
        self._submitted = deque[RemoteJob]()
        self._unsent_s = 0.0  # an estimate of what was submitted and not sent
        self._rates = Rates()
        self._loans = Loans(MAX_LENT_SHARE * actors.store_bytes)
        self._waiting: dict[Hashable, list[RemoteJob]] = {}
        self._queue: list[tuple[float, int, _Call]] = []
        self._sequence = self._early_deaths = 0
        self._stored: dict[int, _Stored] = {}
        self._starting: list[_Actor] = []
        self._actors: list[_Actor] = []
        self._open: dict[RemoteJob, None] = {}  # jobs that somebody may wait for
        self._gone: RunError | None = None
        self._is_open = True
        self._without_actor_since_s = monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fedsim-actors", daemon=True)
        self._watch = threading.Thread(target=self._watch_cluster, name="fedsim-cluster", daemon=True)
        self._thread.start()
        self._watch.start()

    def submit(self, remote: RemoteJob) -> None:
        """Take a job; it is sent when enough are there for a call, or when somebody waits."""
        if not self._is_open:
            remote.cancel()
            return
        self._open[remote] = None
        if self._gone is not None:
            _settle(remote.future, self._gone)
            return
        self._submitted.append(remote)
        self._unsent_s += self._rates.seconds(remote.kind, remote.amount)
        if self._unsent_s >= CALL_S:
            self._unsent_s = 0.0
            self._inbox.put(self._send_full_calls)

    def wait(self, remote: RemoteJob) -> Any:
        """Return a job's result when it is there, or raise what the job raised."""
        if not remote.future.done():
            self._unsent_s = 0.0
            self._inbox.put(self._send_all)
        return remote.future.result()

    def close(self) -> None:
        """Give up what has not ended, and end all actors; may be called twice."""
        self._is_open = False
        self._over.set()
        self._inbox.put(lambda: None)
        self._watch.join()
        self._thread.join(CALL_TIMEOUT_S if self._gone is None else CHECK_S)
        if self._gone is not None or self._thread.is_alive():
            self._settle_all(CancelledError())
            return  # there is nothing to end, and nobody who would answer
        for actor in (*self._starting, *self._actors):
            self._cluster.end(actor.handle)
        self._starting, self._actors = [], []
        self._stored.clear()

    # All that follows runs in the pool's own thread.

    def _run(self) -> None:
        try:
            for number in range(self._num_actors):
                self._start(number)
            while self._is_open:
                with suppress(Empty):
                    self._inbox.get(timeout=CHECK_S)()
                self._look_for_actors()
                self._send_queued()
            self._settle_all(CancelledError())
        except Exception as error:
            if not isinstance(error, FedsimError):
                text = f"{type(error).__name__}: {shortened(error, MAX_SHOWN)}"
                error = RunError(f"the Ray cluster cannot be used any more: {text}")
            self._settle_all(error)
            while self._is_open:  # for those who still come
                self._inbox.get()
                self._settle_all(error)

    def _settle_all(self, error: BaseException) -> None:
        """Let everybody have this error who waits; any thread may."""
        _settle(self.ready, error)
        for remote in list(self._open):
            _settle(remote.future, error)

    def _watch_cluster(self) -> None:
        """Look now and then whether the cluster is there, and let everybody know where it is gone."""
        while not self._over.wait(CHECK_S):
            try:
                self._cluster.check()
            except RunError as error:
                self._gone = error
                self._settle_all(error)
                return

    def _look_for_actors(self) -> None:
        """Give up where there has been no actor for too long."""
        now_s = monotonic()
        if self._actors:
            self._without_actor_since_s = now_s
        if now_s - self._without_actor_since_s > self._patience_s:
            raise RunError(
                f"no actor was ready after {self._patience_s:g} s: the cluster has no room for one, its "
                "machines are gone, or building the run's data takes longer; ask for less "
                "(engine.params.num_cpus, num_gpus), free resources that 'ray status' shows as used, or give "
                "a larger engine.params.patience"
            )

    def _start(self, number: int) -> None:
        actor = _Actor(number, self._cluster.start(number))
        self._starting.append(actor)
        future = self._cluster.greet(actor.handle)
        future.add_done_callback(lambda done: self._inbox.put(partial(self._greeted, actor, done)))

    def _greeted(self, actor: _Actor, answer: Future[Any]) -> None:
        """Take an actor that is ready."""
        self._starting.remove(actor)
        try:
            greeting = answer.result()
        except LostError as error:
            self._early_deaths += 1
            if self._early_deaths > 2 * self._num_actors:
                raise RunError(
                    f"actors die before they can work ({shortened(error, MAX_SHOWN)}): every node needs the "
                    "same fedsim, and memory for the run's data"
                ) from None
            self._replace(actor)
            return
        if isinstance(greeting, Failure):
            behind = greeting.error()
            text = str(behind) if isinstance(behind, FedsimError) else f"{type(behind).__name__}: {behind}"
            raise RunError(f"an actor cannot be made ready: {text}")
        self._accept(greeting)
        self._early_deaths = 0
        actor.host = greeting.host
        self.hosts[greeting.host] += 1
        self._actors.append(actor)
        with suppress(InvalidStateError):
            self.ready.set_result(None)

    def _replace(self, actor: _Actor) -> None:
        self.lost += 1
        self._cluster.end(actor.handle)
        self._start(actor.number)

    def _take_submitted(self) -> None:
        while self._submitted:
            remote = self._submitted.popleft()
            if (job := remote.job) is None:
                self._forget(remote)
                continue
            self._waiting.setdefault((remote.key, remote.kind), []).append(remote)
            remote.trees = tuple(trees_of(job))
            for tree in remote.trees:
                self._stored.setdefault(id(tree), _Stored(tree)).jobs += 1

    def _send_full_calls(self) -> None:
        self._form_calls(CALL_S)

    def _send_all(self) -> None:
        self._form_calls(0.0)

    def _form_calls(self, min_s: float) -> None:
        """Make calls of the jobs that wait, of each kind if they take so long together, s."""
        self._take_submitted()
        ready, total_s = list[list[RemoteJob]](), sum(call.takes_s for _, _, call in self._queue)
        for name, some in list(self._waiting.items()):
            for remote in some:
                remote.takes_s = self._rates.seconds(remote.kind, remote.amount)
            together_s = sum(remote.takes_s for remote in some)
            if together_s >= min_s:
                del self._waiting[name]
                started = [remote for remote in some if remote.future.set_running_or_notify_cancel()]
                for remote in some:
                    if remote.future.cancelled():
                        self._forget(remote)
                if started:
                    ready.append(started)
                    total_s += together_s
        for some in ready:
            some.sort(key=lambda remote: -remote.takes_s)
            start = 0
            for size in sizes([remote.takes_s for remote in some], total_s, self._num_actors):
                self._enqueue(_Call(some[start : start + size]))
                start += size

    def _enqueue(self, call: _Call) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (-call.takes_s, self._sequence, call))

    def _send_queued(self) -> None:
        """Give the longest calls to the actors that have the least to do."""
        while self._queue and self._actors:
            actor = min(self._actors, key=lambda actor: (len(actor.calls), actor.number))
            if len(actor.calls) >= AHEAD:
                return
            *_, call = heapq.heappop(self._queue)
            self._send(actor, call)

    def _send(self, actor: _Actor, call: _Call) -> None:
        apart: dict[int, int] = {}
        references = list[Any]()
        for remote in call.jobs:
            for tree in remote.trees:
                if id(tree) not in apart:
                    apart[id(tree)] = len(references)
                    stored = self._stored[id(tree)]
                    if stored.reference is None:
                        stored.reference = self._cluster.put(plain(tree))
                    references.append(stored.reference)
        alike = call.jobs[0].key is not None
        try:
            octets = packed([remote.job for remote in call.jobs], apart)
        except Exception as error:
            self._fail(call, _cannot_travel(error))
            return
        actor.calls.append(call)
        answer = self._cluster.do(actor.handle, octets, alike, references)
        answer.add_done_callback(lambda done: self._inbox.put(partial(self._answered, actor, call, done)))

    def _answered(self, actor: _Actor, call: _Call, answer: Future[PackedResult]) -> None:
        if call not in actor.calls:
            return  # of an actor that was lost with it, or after an error
        try:
            done: Done = self._loans.read(answer.result())
        except LostError as error:
            self._lose(actor, error)
            return
        except Exception as error:
            actor.calls.remove(call)
            self._fail(call, _cannot_travel(error))
            return
        actor.calls.remove(call)
        amount = sum(remote.amount for remote in call.jobs)
        self._rates.learn(call.jobs[0].kind, amount, done.took_s)
        name = str(call.jobs[0].kind[0])
        self.jobs_done[name].update(done.ways)
        if self.job_times is not None:
            began_ns = self.job_times.now_ns() - round(done.took_s * 1e9)
            self.job_times.done(name, len(call.jobs), began_ns, f"actor {actor.number}")
        for remote, result in zip(call.jobs, done.results, strict=True):
            self._forget(remote)
            if isinstance(result, Failure):
                _settle(remote.future, result.error())
            else:
                with suppress(InvalidStateError):  # the cluster was given up in this instant
                    remote.future.set_result(result)

    def _fail(self, call: _Call, error: Exception) -> None:
        for remote in call.jobs:
            self._forget(remote)
            _settle(remote.future, error)

    def _forget(self, remote: RemoteJob) -> None:
        """Let go of a job that has ended, and of what only it needed."""
        self._open.pop(remote, None)
        trees, remote.trees = remote.trees, ()
        for tree in trees:
            stored = self._stored[id(tree)]
            stored.jobs -= 1
            if not stored.jobs:
                del self._stored[id(tree)]

    def _lose(self, actor: _Actor, error: LostError) -> None:
        """Have the calls of an actor that has died done by others; jobs are pure, so that is all."""
        calls, actor.calls = actor.calls, []
        self._actors.remove(actor)
        for number, call in enumerate(calls):
            self.repeated += len(call.jobs)
            for remote in call.jobs:
                remote.lost += number == 0  # the others had not begun
            if call.jobs[0].lost < MAX_LOST:
                self._enqueue(call)
            elif len(call.jobs) > 1:  # to find out which one it is
                for remote in call.jobs:
                    remote.lost = 0
                    self._enqueue(_Call([remote]))
            else:
                text = shortened(error, MAX_SHOWN)
                self._fail(
                    call,
                    JobError(f"{MAX_LOST} actors have died at a job, perhaps for want of memory: {text}"),
                )
        self._replace(actor)


def _settle(future: Future[Any], error: BaseException) -> None:
    """Let whoever waits have an error, unless another thread was faster."""
    with suppress(InvalidStateError):
        future.set_exception(error)


def _cannot_travel(error: Exception) -> JobError:
    """Return the error of jobs that could not be sent to an actor, or whose results could not come back."""
    return JobError(
        f"a job cannot go to another process ({type(error).__name__}: {shortened(error, MAX_SHOWN)}): steps, "
        "losses and models are records and functions at the top of a module that every node can import"
    )
