"""Actors on a Ray cluster: the CPUs and GPUs of many machines, with the same results.

Each actor builds the run's data from the scenario, on its machine, and holds them; only models and results
travel. Before it works it shows fingerprints of its data and of the numbers that it computes. Jobs that are
alike are done together as in threads, and go to actors in calls of 50 ms or more. An actor that dies is
replaced, and its jobs are done again. Jobs of less than some 50 ms hardly pay: ``fedsim check`` says so.

An algorithm's own arithmetic stays in this process, in as many threads as ``engine.workers`` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from fedsim.config import Config
from fedsim.data.fingerprints import differences as data_differences
from fedsim.engine.cluster.actor_pool import ActorPool, RemoteJob
from fedsim.engine.cluster.actors import Greeting, RayActors
from fedsim.engine.cluster.connection import AUTO, Address, Connection
from fedsim.engine.cluster.numeric_fingerprint import PIN, differences
from fedsim.engine.execute import unfitted
from fedsim.engine.executors.base import Due, Executor, ExecutorConfig, Promise
from fedsim.engine.executors.threads import Threads
from fedsim.engine.jobs import Call, Evaluate, Fit, Job, Predict
from fedsim.engine.like_fits import LikeFits
from fedsim.engine.worker_state import Resources
from fedsim.errors import UserError
from fedsim.units import PositiveSeconds


class RayConfig(Config):
    """Which cluster, and what of it."""

    address: Address = AUTO
    """The cluster: ``auto`` for that of ``RAY_ADDRESS`` or of this machine, ``local`` for one on this machine
    that lasts as long as the run, or ``HOST:PORT`` of its head."""
    actors: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Processes that do jobs; as many as the cluster has room for if left out."""
    num_cpus: Annotated[float, Field(gt=0, le=1024)] = 1.0
    """CPUs that an actor takes."""
    num_gpus: Annotated[float, Field(ge=0, le=64)] = 0.0
    """GPUs that an actor takes, for ``engine.device = "cuda"``; 0.25 lets four actors share one."""
    numeric: Literal["exact", "tolerant"] = "exact"
    """Whether machines that compute other bits are refused, or accepted: then results depend on which machine
    did what, and ``run.json`` says so."""
    patience: PositiveSeconds = Field("2 min", validate_default=True)
    """How long the run waits for a first actor, and goes on without any."""


class Ray(Threads):
    """Actors for all jobs but an algorithm's own arithmetic.

    Raises:
        RunError: The cluster is gone, or actors cannot be started or made ready.
        UserError: The cluster cannot be joined, or an actor's fedsim, data or numbers are others.
    """

    Params = RayConfig
    is_elsewhere = True
    extra = "ray"

    _pool: ActorPool | None = None
    _connection: Connection | None = None
    _differences: dict[str, list[str]]

    def for_trials(self) -> Executor:
        """Return the thread of whoever waits, which does what an actor does."""
        return Threads(ExecutorConfig(workers=1))

    @property
    def num_at_once(self) -> int:
        """How many jobs can be under way."""
        if self._pool is None:
            return self._params.actors or self.config.workers
        return self._num_actors

    @property
    def facts(self) -> Mapping[str, Any]:
        """Which machines have worked, which actors have died, and what was accepted of their numbers."""
        if self._pool is None:
            return {}
        pool, numeric = self._pool, self._params.numeric
        return {
            "ray": {
                "version": self._version,
                "address": self._address,
                "actors": self._num_actors,
                "hosts": dict(sorted(pool.hosts.items())),
                "actors_lost": pool.lost,
                "jobs_repeated": pool.repeated,
                "numeric": numeric,
                **({"other_numbers": self._differences} if self._differences else {}),
            }
        }

    @property
    def jobs_done(self) -> Mapping[str, Mapping[str, int]]:
        """How many jobs of each kind were done together in an actor, and how many by themselves or here."""
        return {**super().jobs_done, **(self._pool.jobs_done if self._pool else {})}

    @property
    def _params(self) -> RayConfig:
        return cast(RayConfig, self.config.params)

    def open(self, resources: Resources) -> None:
        """Join the cluster, start the actors, and wait for the first of them."""
        if resources.rebuild is None:
            raise UserError(
                "actors build what they need from a scenario, and this run was made without one: take the "
                "executor 'threads', or make the run by fedsim.run"
            )
        super().open(resources)
        params, self._differences = self._params, {}
        self._here: Future[Greeting] = Future()
        try:
            self._connection = Connection(params.address, (params.actors or 0) * params.num_cpus)
            self._version, self._address = self._connection.ray.__version__, self._connection.address
            self._num_actors = params.actors or self._room()
            actors = RayActors(self._connection, resources.rebuild, params.num_cpus, params.num_gpus)
            self._pool = ActorPool(actors, self._num_actors, self._accept, params.patience)
            self._pool.job_times = self.job_times
            self._here.set_result(Greeting.of(resources))  # while actors start
            self._pool.ready.result()
        except BaseException:
            self._here.cancel()
            self.close()
            raise

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Promise:
        """Keep a job for the actors, or for this process where it is an algorithm's own arithmetic."""
        if isinstance(job, Call) or self._pool is None:
            return super().submit(job, due, step_flops=step_flops)
        key = self._batch_key(job) if self.config.batching == "auto" else None
        remote = RemoteJob(job, key, _kind(job, step_flops), self._amount(job, step_flops))
        if isinstance(job, Fit) and job.num_steps == 0:
            remote.future.set_result(unfitted(job))
        else:
            self._pool.submit(remote)
        return remote

    def submit_like(self, fits: LikeFits, due: Due, *, step_flops: float | None = None) -> Promise | None:
        """Keep fits for this process where no actor does them."""
        return super().submit_like(fits, due, step_flops=step_flops) if self._pool is None else None

    def wait(self, promise: Any) -> Any:
        """Return the result when it is there; all that is waiting goes to the actors."""
        if not isinstance(promise, RemoteJob) or self._pool is None:
            return super().wait(promise)
        self._check_who_waits()
        return self._pool.wait(promise)

    def close(self) -> None:
        """Drop what has not ended, end the actors, and leave the cluster; end it if it was started here."""
        super().close()
        if self._pool is not None:
            self._pool.close()
        if self._connection is not None:
            self._connection.close()

    def _room(self) -> int:
        """Return for how many actors the cluster has room."""
        assert self._connection is not None  # noqa: S101
        params, free = self._params, self._connection.ray.available_resources()
        room = int(free.get("CPU", 0.0) / params.num_cpus)
        if params.num_gpus:
            room = min(room, int(free.get("GPU", 0.0) / params.num_gpus))
        return max(1, room)

    def _amount(self, job: Job, step_flops: float | None) -> float:
        """Return the operations of a job; of one whose operations are not known, its steps or samples."""
        match job:
            case Fit(num_steps=num_steps):
                return (step_flops or 1.0) * num_steps
            case Predict(samples=samples):
                return step_flops or self._resources.num_samples(samples)
            case Evaluate(parts=parts):
                return step_flops or sum(map(self._resources.num_samples, parts))
        raise TypeError(job)

    def _accept(self, greeting: Greeting) -> None:
        """Raise a UserError that says what differs, if an actor would not give this process's results."""
        here, host = self._here.result(), greeting.host
        if greeting.fedsim != here.fedsim:
            raise UserError(
                f"{host} runs fedsim {greeting.fedsim}, this is fedsim {here.fedsim}: install the same "
                "version on every node"
            )
        if data := data_differences(here.data, greeting.data):
            raise UserError(
                f"the data of the actor on {host} are not those of this process on {here.host}: "
                f"{'; '.join(data)}. Both build them from the scenario, so files or versions differ: give "
                "the same files by FEDSIM_DATA, set before 'ray start', and install the same versions of "
                "numpy, scikit-learn and torchvision on every node"
            )
        if "device" in greeting.numbers and "device" not in here.numbers:
            # Jobs are done on CUDA, which this process may not have: the first actor's numbers are the run's.
            self._here = Future()
            self._here.set_result(replace(here, numbers=greeting.numbers))
            return
        if numbers := differences(here.numbers, greeting.numbers):
            if self._params.numeric == "exact":
                raise UserError(
                    f"{host} computes other numbers than {here.host}: {', '.join(numbers)}. To have the "
                    f'same, {PIN}; or accept results that depend on who did what, by numeric = "tolerant" in '
                    "engine.params"
                )
            self._differences[host] = numbers


def _kind(job: Job, step_flops: float | None) -> tuple[Hashable, ...]:
    """Return what a job has in common with those that take as long for each of their amount."""
    name, is_counted = type(job).__name__.lower(), step_flops is not None
    match job:
        case Fit(step=step, models=models):
            labels = [model.architecture for model in models.values()]
            return name, is_counted, type(step), *labels
        case Predict(model) | Evaluate(model):
            return name, is_counted, model.architecture
    raise TypeError(job)


PLUGIN = Ray
