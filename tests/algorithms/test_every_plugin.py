"""One suite over every algorithm: what the contract promises of all of them."""

import gc
import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import algorithms_page
import numpy as np
import pytest
import torch

from fedsim import walk
from fedsim.algorithms.base import About, Algorithm, Exchange, Setting
from fedsim.algorithms.contexts import ServerContext
from fedsim.algorithms.local import Local, LocalConfig
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.executors.threads import Threads
from fedsim.engine.jobs import Fit, Job
from fedsim.engine.worker_state import Resources
from fedsim.errors import JobError
from fedsim.models import Architecture
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.params import Model
from fedsim.plugins import available
from fedsim.runtime.clients.host import ClientHost
from fedsim.runtime.evaluation import Observer
from fedsim.runtime.parts import EvaluationConfig
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.run import RunResult, run
from fedsim.runtime.server.non_finite import spoiled
from fedsim.task import Task
from fedsim.wire import Message, Packed
from tests.algorithms.stand_ins import QUICK
from tests.engine.device_waits import device_waits

FOUND = available("fedsim.algorithms")
WORK: dict[str, dict[str, Any]] = {"l2sgd": {}}
"""How long clients train to learn something, where they draw it themselves."""
MAIN = {"local", "fedavg", "fedprox", "fedmd"}
"""Those of the main job."""
WITHOUT_A_PAPER = {"centralized"}
"""Reference points that nobody has proposed."""
every = pytest.mark.parametrize("name", [found.name for found in FOUND])
main_else_slow = pytest.mark.parametrize(
    "name",
    [pytest.param(found.name, marks=[] if found.name in MAIN else pytest.mark.slow) for found in FOUND],
)


def _plugin(name: str) -> type[Algorithm[Any, Any, Any]]:
    (plugin,) = (found.plugin for found in FOUND if found.name == name)
    assert issubclass(plugin, Algorithm)
    return plugin


def _those_with(attribute: str) -> list[str]:
    return [found.name for found in FOUND if getattr(_plugin(found.name), attribute)]


EVERY_WAY: list[tuple[str, dict[str, Any]]] = [
    *(("apfl", {"mix_with": party}) for party in ("client", "server")),
    *(("ifca", params) for params in ({"option": "grad_avg"}, {"shared_base": True})),
    *(("hypcluster", params) for params in ({}, {"clusters": 3, "start": "kmeans", "start_clients": 4})),
    *(("mapper", {"mix": mix}) for mix in ("params", "outputs")),
    ("fedavg_ft", {"finetune_epochs": "chosen"}),
    *((name, {}) for name in ("ditto", "fedamp", "fedfomo", "fedgems", "l2sgd", "moon", "scaffold")),
    *((name, QUICK[name]) for name in ("fedgkt", "pfedhn")),
    ("pfedme", {"all_train": True}),
]
"""Algorithms that keep, send or do what others do not, and their parameters."""
LATE = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"late": "carry", "deadline": "5 s"}))


@pytest.fixture(scope="module")
def usual(world: Any) -> Callable[[str], RunResult]:
    """Return the run of an algorithm in the small world: one round, and one after what has been merged."""
    return cache(lambda name: world.run(world.quick(name), rounds=2, verify=True))


def test_the_four_of_the_main_job_are_there() -> None:
    assert {found.name for found in FOUND} >= MAIN


@every
def test_says_what_it_does_and_cites_its_source(name: str) -> None:
    text = algorithms_page.docstring(_plugin(name))
    assert len(text.splitlines()) >= 4
    if name not in WITHOUT_A_PAPER:
        assert re.search(r"arXiv\s\d{4}\.\d{5}|: .{20,}\b(19|20)\d\d\b", text, re.S), (
            "cite the paper: authors, title, venue and year, or its number at arXiv"
        )


@every
def test_says_what_a_reader_compares_it_by(name: str) -> None:
    about = _plugin(name).__dict__.get("about")
    assert isinstance(about, About), "each plugin says so itself: about = About(...)"
    (found,) = (found for found in FOUND if found.name == name)
    assert found.kind == about.kind


@pytest.mark.parametrize("name", [one.name for one in FOUND if _plugin(one.name).mixed_architectures])
def test_says_whether_the_server_has_a_model_of_its_own(
    name: str, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, asked = _plugin(name), list[str | None]()
    initial_model, start = ServerContext.initial_model, plugin.start

    def noting(self: ServerContext, architecture: str | None = None, *, variant: int = 0) -> Model:
        asked.append(architecture)
        return initial_model(self, architecture, variant=variant)

    def started(self: Algorithm[Any, Any, Any], server: ServerContext) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(ServerContext, "initial_model", noting)
            return start(self, server)

    monkeypatch.setattr(plugin, "start", started)
    world.run(world.quick(name), rounds=1)
    assert plugin.server_model == (None in asked)


@every
def test_documents_every_parameter(name: str) -> None:
    plugin = _plugin(name)
    undocumented = [f for f, info in plugin.Config.model_fields.items() if not info.description]
    assert not undocumented
    plugin.Config()  # every parameter has a default


@every
def test_hooks_of_exchanges_are_async(name: str, world: Any) -> None:
    algorithm = world.quick(name)
    assert algorithm.exchanges
    for exchange in algorithm.exchanges:
        assert isinstance(exchange, Exchange)
        hooks = [hook for hook in (exchange.instruct, exchange.local, exchange.merge) if hook is not None]
        assert hooks
        assert all(inspect.iscoroutinefunction(hook) for hook in hooks)


@every
def test_leaves_arguments_untouched_and_repeats_itself(
    name: str, world: Any, usual: Callable[[str], RunResult]
) -> None:
    # Under verify: arguments are hashed around every hook, and every frame is decoded twice.
    first = usual(name)
    again = world.run(world.quick(name), workers=2, rounds=2)
    assert (first.trace_hash, first.model_hash) == (again.trace_hash, again.model_hash)


@pytest.mark.parametrize(
    ("name", "params"),
    [("fedbuff", {"momentum": 0.9}), *(pytest.param(*one, marks=pytest.mark.slow) for one in EVERY_WAY)],
)
def test_models_are_the_same_over_sockets_and_one_by_one(
    name: str, params: dict[str, Any], world: Any
) -> None:
    data = replace(world.data(), public_at_clients=name != "fedgems")
    world.check_every_way(lambda: world.algorithm(name, **params), data=data, rounds=2)


@main_else_slow
def test_runs_where_nothing_learns(name: str, world: Any) -> None:
    result = world.run(world.quick(name), rounds=2, executor=NULL(ExecutorConfig()))
    assert result.final is None
    assert result.simulated_s > 0


@pytest.mark.parametrize("name", _those_with("needs_classes"))
def test_probabilities_of_classes_need_classes(name: str, world: Any) -> None:
    task = Task((3,), 1, "regression")
    net = Architecture("net", LINEAR(LINEAR.Config()), task)
    faults = list(world.algorithm(name).misfits(Setting(task, {"net": net}, net, 40, True)))
    assert "take a data set with classes" in faults[0].mend
    assert "'ktpfl_w'" in faults[0].mend


@pytest.mark.parametrize("name", _those_with("new_replies_only"))
def test_replies_of_earlier_rounds_may_be_refused(name: str, world: Any) -> None:
    (fault,) = world.parts(world.algorithm(name), pacing=LATE).misfits()
    assert fault.path == "participation.pacing.params.late"
    assert not list(world.parts(world.algorithm(name)).misfits())


@pytest.mark.parametrize(("name", "count"), [("ditto", 24), ("fedper", 12), ("l2sgd", 12), ("scaffold", 12)])
def test_clients_are_trained_together(name: str, count: int, world: Any) -> None:
    parts = world.parts(world.algorithm(name), verify=False)
    run(parts)
    assert parts.executor.jobs_done["fit"]["together"] == count


@main_else_slow
def test_another_seed_is_another_run(name: str, world: Any, usual: Callable[[str], RunResult]) -> None:
    other = world.run(world.quick(name), seed=1, rounds=2)
    assert other.model_hash != usual(name).model_hash


class Keeping(Threads):
    def open(self, resources: Resources) -> None:
        super().open(resources)
        self.resources, self.fits = resources, dict[Any, Fit]()

    def submit(self, job: Job, *others: Any, **more: Any) -> Any:
        if isinstance(job, Fit) and job.num_steps:
            self.fits.setdefault((type(job.step), tuple(job.streams), tuple(job.extras)), job)
        return super().submit(job, *others, **more)

    def submit_like(self, *given: Any, **more: Any) -> None:
        """Let each fit be submitted."""


@main_else_slow
def test_no_step_waits_for_a_device(name: str, world: Any) -> None:
    executor = Keeping(ExecutorConfig())
    world.run(world.quick(name), rounds=2, executor=executor)
    assert executor.fits
    for job in executor.fits.values():
        few, many = (device_waits(replace(job, num_steps=count), executor.resources) for count in (2, 4))
        assert few == many


@main_else_slow
def test_steps_have_portable_operations_alone_or_are_refused(name: str, world: Any) -> None:
    distils_in_float64 = name in ("feddf", "pfeddf")
    with pytest.raises(JobError, match="log of float64") if distils_in_float64 else nullcontext():
        world.run(world.quick(name), rounds=2, numerics="portable")


@main_else_slow
def test_learns(name: str, world: Any) -> None:
    result = world.run(world.quick(name), rounds=6, training=WORK.get(name, {"epochs": 3}), num_samples=400)
    assert result.final is not None
    assert result.final.mean > 0.35  # ten classes


def _size(value: Any) -> Counter[str]:
    """Return how many arrays a value holds, of how many bytes, and how many entries its records have."""
    if isinstance(value, np.ndarray):
        return Counter(arrays=1, bytes=value.nbytes)
    if isinstance(value, str):
        return Counter()
    parts = walk.parts(value)
    return sum(map(_size, parts.values()), Counter(entries=len(parts)))


@pytest.fixture
def remembered(world: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Mapping[str, Any]]]:
    """Return a function that gives the sizes of what server and clients hold after three rounds and six."""
    hosts, sizes = set[ClientHost](), list[Mapping[str, Any]]()
    states, measure = ClientHost.states, Observer.measure

    async def of_host(host: ClientHost, clients: Mapping[int, int]) -> list[Any]:
        hosts.add(host)
        return await states(host, clients)

    async def measured(observer: Observer, state: Any, *others: Any) -> Any:
        accuracy = await measure(observer, state, *others)
        held = [host.held(client) for host in hosts for client in range(4)]
        sizes.append({"server": _size(state), "clients": _size(held)})
        return accuracy

    def run(algorithm: Any) -> list[Mapping[str, Any]]:
        keeping = {"momentum": 0.5, "keep_optimiser": True}
        keeps = not list(world.parts(algorithm, training=keeping).misfits())
        evaluation = EvaluationConfig(every=3)
        changes = {"training": keeping if keeps else {}, "evaluation": evaluation, "verify": False}
        world.run(algorithm, rounds=6, **changes)
        return sizes[:2]

    monkeypatch.setattr(ClientHost, "states", of_host)
    monkeypatch.setattr(Observer, "measure", measured)
    return run


@main_else_slow
def test_remembers_no_more_from_round_to_round(name: str, world: Any, remembered: Any) -> None:
    # All clients are in every round, and have kept what they keep long before the third.
    early, late = remembered(world.quick(name))
    for party, size in late.items():
        assert size <= early[party], party


@pytest.mark.parametrize("party", ["server", "clients"])
def test_growing_memory_is_seen(party: str, remembered: Any) -> None:
    class Hoarding(Local):
        async def train(self, client: Any, state: Any, message: Any) -> Any:
            return (*state, None) if party == "clients" else state, None

        async def merge(self, server: Any, state: Any, replies: Any) -> Any:
            return (*(state or ()), None) if party == "server" else state

        def join(self, client: Any) -> Any:
            return ()

        async def models_of(self, observer: Any, server_state: Any, client_state: Any) -> Any:
            return {}

        @property
        def exchanges(self) -> Any:
            return (Exchange("train", local=self.train, merge=self.merge),)

    early, late = remembered(Hoarding(LocalConfig()))
    assert [one for one in late if not late[one] <= early[one]] == [party]


LARGE = torch.Tensor, Model, Message, Packed, Fit


def _alive() -> Counter[str]:
    # Not by gc.garbage: what generators hold is freed before it would come there.
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, LARGE))


@main_else_slow
def test_survives_lost_uploads_and_leaves_nothing_large_to_the_cyclic_collector(
    name: str, world: Any
) -> None:
    # Every second frame towards the server is lost; the lease tells the server.
    uploads = []

    def every_second_upload(parcel: Any, ordinal: int) -> bool:
        if parcel.receiver < 0:
            uploads.append(ordinal)
            return len(uploads) % 2 == 0
        return False

    # The collector hardly runs during a run, so samples, models and frames in a cycle would pile up by the
    # gigabyte. Counted at the ends of rounds: the end of the run frees all that it consists of.
    freed = Counter[str]()

    def count_freed(row: Any) -> None:
        before = _alive()
        gc.collect()
        freed.update(before - _alive())

    parts = world.parts(world.quick(name), lost=every_second_upload, client_timeout_s=50.0)
    result = run(parts, watch=count_freed)
    dropped = sum(row.dropped for row in result.rounds)
    assert dropped == len(uploads) // 2
    assert [row.round for row in result.rounds if 0 < row.round <= 3] == [1, 2, 3]
    assert result.drops["timeout"] == dropped
    assert not freed


@every
def test_survives_silence(name: str, world: Any) -> None:
    # Nothing arrives at all: the server's state never changes, rounds still go by (specification 3.5, E2).
    result = world.run(world.quick(name), lost=lambda parcel, ordinal: True, client_timeout_s=5.0)
    assert [row.round for row in result.rounds if 0 < row.round <= 3] == [1, 2, 3]
    assert result.final is not None


@main_else_slow
def test_runs_with_one_client_who_has_a_model_of_its_own_if_the_class_says_so(name: str, world: Any) -> None:
    algorithm = world.quick(name)
    measured = world.results(algorithm, "models_of")
    result = world.run(algorithm, num_clients=1, rounds=2)
    assert result.final is not None
    assert result.final.std == 0.0
    assert any("personal" in models for models in measured) == _plugin(name).about.personal  # type: ignore[union-attr]


def absurd(value: Any) -> Any:
    """Return a value as far out as its type goes; an array as far as a server takes it."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.where(np.arange(value.size).reshape(value.shape) % 2, -1.8e19, 1.8e19).astype(value.dtype)
    if isinstance(value, Mapping):
        return {name: absurd(item) for name, item in value.items()}
    if type(value) in (int, float):
        return 2**63 - 1 if isinstance(value, int) else 1e308
    return value


@pytest.fixture
def lying(world: Any) -> Callable[..., Any]:
    """Return a function that makes an algorithm of which clients send something else than all its replies."""

    def make(name: str, lie: Callable[[Any, Any], Any]) -> Any:
        algorithm = world.quick(name)
        for exchange in algorithm.exchanges:
            if exchange.local is not None:
                hook = exchange.local.__name__
                world.lying(algorithm, hook, lambda client, reply: reply and lie(client, reply))
        return algorithm

    return make


@main_else_slow
def test_clients_that_send_absurd_values_end_no_run(name: str, world: Any, lying: Any) -> None:
    # Client 0 sends the largest numbers that its messages can hold, client 1 such arrays alone.
    lies = [0]

    def lie(client: Any, reply: Any) -> Any:
        if client.client > 1:
            return reply
        fields = {one: getattr(reply, one) for one, _, _ in reply.PLAN.fields}
        told = {one: absurd(it) for one, it in fields.items() if not (client.client and np.isscalar(it))}
        lies[0] += any(type(it) is int for it in told.values())
        return type(reply)(**{**fields, **told})

    algorithm = lying(name, lie)
    states = world.recorded(algorithm, "models_of", lambda observer, server_state, *_: server_state)
    result = world.run(algorithm, rounds=2)
    assert [row.round for row in result.rounds if 0 < row.round <= 2] == [1, 2]
    # Each reply of client 0 names some number, of samples or another, that cannot be.
    assert result.by_client["rejected"][0] == lies[0]
    assert all(spoiled(state) is None for state in states)


@main_else_slow
def test_clients_that_send_numbers_too_large_to_compute_with_harm_nobody(
    name: str, world: Any, lying: Any
) -> None:
    sent = [0]

    def lie(client: Any, reply: Any) -> Any:
        arrays = getattr(reply, "params", None)
        if client.client or not arrays:
            return reply
        sent[0] += 1
        return replace(reply, params={key: np.full_like(array, 3e38) for key, array in arrays.items()})

    result = world.run(lying(name, lie), rounds=2)
    assert result.by_client["rejected"].tolist() == [sent[0], 0, 0, 0]
    assert result.non_finite is None
