"""A hook runs once for several clients only where each client's own would do the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pytest

from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.algorithms.common.proximal import held_near
from fedsim.algorithms.fedavg import FedAvg
from fedsim.clock import Trace, now_s
from fedsim.engine.cost import FitWork
from fedsim.engine.fit_job_cache import CachedFit
from fedsim.engine.jobs import Stream
from fedsim.params import Form, Model, PendingTree, RowTree, Tree
from fedsim.runtime.clients.cohort import Cohort
from fedsim.runtime.clients.leading_hook import LeadingHook
from fedsim.runtime.clients.shared_hook import making, skeleton
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario
from fedsim.wire import ModelBroadcast, ModelUpdate, counted, message

SIMPLE: Mapping[str, Any] = {
    "run": {"name": "shared", "rounds": 2},
    "data": {"name": "digits", "global_test": 0.8},
    "models": {"linear": {}},
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.05, "batch_size": 5, "epochs": 1},
    "fleet": [{"count": 6, "device": "low"}],
    "participation": {"clients_per_round": 5},
    "engine": {"executor": "threads"},
    "evaluation": {"every": 0},
}


def run_with(hook: Callable[..., Any], changes: Mapping[str, Any], *, drives: bool) -> tuple[Any, int]:
    """Run with a hook of clients; return all records and the model, and how often the hook began."""
    num_hooks = 0

    async def counted(self: Any, client: Any, state: Any, message: Any) -> Any:
        nonlocal num_hooks
        num_hooks += 1
        return await hook(client, state, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelTraining, "train", counted)
        if not drives:
            patch.setattr("fedsim.runtime.run.CohortDrivers", lambda *_: None)
        trace = Trace(keep=True)
        result = run(build(load_scenario(SIMPLE, changes)), trace=trace)
    return (trace.kept, result.model_hash, result.rejections), num_hooks


async def _plain(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit(message.model)
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def _twice(client: Any, state: Any, message: Any) -> Any:
    streams = {"train": Stream(client.own("train"), 4)}
    await client.fit(message.model, name="first", epochs=2)
    fitted = await client.fit(message.model, streams=streams, steps=3)
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def _constant(client: Any, state: Any, message: Any) -> Any:
    return state, ModelUpdate.of(message.model, num_samples=1)


async def _fails_in_between(client: Any, state: Any, message: Any) -> Any:
    with pytest.raises(ValueError, match="give one of them"):
        await client.fit(message.model, epochs=1, steps=1)
    with pytest.raises(ValueError, match="without streams"):
        await client.fit(message.model, streams={}, name="other")
    return await _plain(client, state, message)


@pytest.mark.parametrize("hook", [_plain, _twice, _constant, _fails_in_between])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine.executor": "null"},
        {"engine.batching": "off"},
        {"engine.workers": 2},
        {"models": {"cnn": {}}, "data.params": {"shape": "image"}, "run.rounds": 1, "engine.workers": 2},
        {"fleet.0.variation": 0.5, "fleet.0.load": {"distribution": "exponential"}},
    ],
    ids=str,
)
def test_like_clients_share_a_hook(hook: Callable[..., Any], changes: Mapping[str, Any]) -> None:
    shared, num_shared = run_with(hook, changes, drives=True)
    alone, num_alone = run_with(hook, changes, drives=False)
    assert shared == alone
    num_rounds = changes.get("run.rounds", 2)
    assert num_alone == 5 * num_rounds
    assert num_shared < num_alone


def _asks(ask: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a hook whose number of steps depends on something."""

    async def hook(client: Any, state: Any, message: Any) -> Any:
        fitted = await client.fit(message.model, steps=1 + hash(ask(client)) % 3)
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    return hook


async def _looks(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit(message.model, name="first")
    fitted = await client.fit(message.model, steps=1 + int(fitted.loss * 1e4) % 3)
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def _goes_on(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit(message.model, name="first")
    fitted = await client.fit(fitted.model, name="second")
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def _evaluates(client: Any, state: Any, message: Any) -> Any:
    score = await client.evaluate(message.model, client.own("train"))
    fitted = await client.fit(message.model, steps=1 + score.correct % 3)
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def _notes(client: Any, state: Any, message: Any) -> Any:
    client.note("trains")
    return await _plain(client, state, message)


async def _keeps_a_state(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit(message.model)
    return 1, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


@pytest.mark.parametrize(
    "hook",
    [
        _asks(lambda client: client.client),
        _asks(lambda client: client.dispatch),
        _asks(lambda client: client.key.seed),
        _asks(lambda client: client.num_samples("test")),
        _asks(lambda client: client.own("val")),
        _asks(lambda client: client.own_values()[0].sum()),
        _asks(lambda client: client.labels(client.own("train")).sum()),
        _asks(lambda client: now_s()),
        _looks,
        _goes_on,
        _evaluates,
        _notes,
        _keeps_a_state,
    ],
)
def test_a_hook_that_knows_its_client_runs_for_each(hook: Callable[..., Any]) -> None:
    (quick, num_quick), (alone, num_alone) = (run_with(hook, {}, drives=drives) for drives in (True, False))
    assert quick == alone
    assert num_quick == num_alone == 10


def test_an_attempt_in_vain_starts_no_hook_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cohort, "_is_certain", lambda *_: False)
    (quick, num_quick), (alone, num_alone) = (run_with(_plain, {}, drives=drives) for drives in (True, False))
    assert quick == alone
    assert num_quick == num_alone


def test_a_model_that_diverges_is_rejected_alone() -> None:
    changes = {"training.lr": 1e6, "training.epochs": 9, "models": {"mlp": {"params": {"hidden": [9, 9]}}}}
    quick, _ = run_with(_plain, changes, drives=True)
    assert quick == run_with(_plain, changes, drives=False)[0]
    assert quick[-1]


async def _sends_nothing(client: Any, state: Any, message: Any) -> Any:
    await client.fit(message.model)
    return state, None


async def _stays(self: Any, server: Any, state: Any, replies: Any) -> Any:
    return state


def test_a_reply_without_a_frame_is_vetted_though_its_fit_diverges() -> None:
    changes = {"training.lr": 1e6, "training.epochs": 9, "models": {"mlp": {"params": {"hidden": [9, 9]}}}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelTraining, "reply", None)
        patch.setattr(FedAvg, "merge", _stays)
        shared, num_shared = run_with(_sends_nothing, changes, drives=True)
        assert (shared, 10) == run_with(_sends_nothing, changes, drives=False)
    assert num_shared < 10


def test_fits_whose_results_nobody_sends_are_not_done() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelTraining, "train", lambda self, *given: _twice(*given))
        parts = build(load_scenario(SIMPLE))
        run(parts)
    assert sum(parts.executor.jobs_done["fit"].values()) == 10  # of 20: five clients, two rounds


def test_ctrl_c_in_a_job_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsim.engine.executors.threads.run_together", pressed)
    with pytest.raises(KeyboardInterrupt):
        run(build(load_scenario(SIMPLE)))


def _tree(form: Form, value: float) -> PendingTree:
    return PendingTree(form, lambda: {"w": np.full(2, value)})


def test_a_value_is_made_with_other_trees_in_its_places() -> None:
    form = Form.of({"w": np.zeros(2)})
    first, second = (_tree(form, value) for value in (1, 2))
    slots = {id(first): 0, id(second): 1}

    def slot_of(tree: Any) -> int | None:
        return slots.get(id(tree))

    reply = ModelUpdate.of(Model("net", first), num_samples=7)
    make = making({"a": [reply, 5], "b": (second, "x"), "c": Model("net", second)}, slot_of)
    made = make([_tree(form, 4), _tree(form, 5)])
    (message, five), (tree, x), model = made.values()
    assert (five, x, message.num_samples, message.architecture) == (5, "x", 7, "net")
    assert (message.params["w"].tolist(), tree["w"].tolist()) == ([4, 4], [5, 5])
    assert (model.architecture, model.params["w"].tolist()) == ("net", [5, 5])
    assert message.model.params["w"].tolist() == [4, 4]
    assert type(message) is ModelUpdate
    constant = [1, np.zeros(2)]
    assert making(constant, slot_of)([]) is constant
    with pytest.raises(KeyError):
        making(CachedFit(FitWork((), {}, 0), {"first": cast(Any, first)}, 1, "moving"), slot_of)


def test_a_value_that_can_make_others_keeps_none_of_its_trees() -> None:
    class Kept(dict[str, Any]):
        """A tree that can be watched."""

    tree = Kept(w=np.zeros(2))
    watched = weakref.ref(tree)
    make = making(ModelBroadcast.of(Model("net", tree)), lambda its: 0 if its is watched() else None)
    del tree
    gc.collect()
    assert watched() is None
    assert make([{"w": np.ones(2)}]).params["w"].tolist() == [1, 1]


def test_messages_that_differ_in_trees_alone_have_one_skeleton() -> None:
    def parts_of(value: Any) -> tuple[Any, list[Any]]:
        trees: list[Any] = []
        return skeleton(value, trees), trees

    def broadcast(value: float, width: int = 2, label: str = "net") -> ModelBroadcast:
        return ModelBroadcast.of(Model(label, {"w": np.full(width, value)}))

    (same, trees), (again, others) = parts_of(broadcast(1)), parts_of(broadcast(2))
    assert same == again
    assert [tree["w"].tolist() for tree in (*trees, *others)] == [[1, 1], [2, 2]]
    assert same != parts_of(broadcast(1, width=3))[0]
    assert same != parts_of(broadcast(1, label="other"))[0]
    for value, other in (((1, 0.0), (1, -0.0)), ([1], (1,)), ((True,), (1,)), ({"a": 1}, {"b": 1})):
        assert parts_of(value)[0] != parts_of(other)[0]
    form = Form.of({"w": np.zeros(2)})
    for refused in ([np.zeros(2)], [_tree(form, 1)]):
        with pytest.raises(TypeError):
            parts_of(refused)
    row = RowTree(np.zeros(2), form)
    assert parts_of([row]) == ((list, ((0, form),)), [row])


@message("anchored")
class Anchored(ModelBroadcast):
    anchor: Tree = counted()


def test_a_tree_in_two_places_of_a_message_may_be_two_trees_later() -> None:
    tree, other = ({"w": np.full(2, value)} for value in (1.0, 2.0))
    leading = LeadingHook(cast(Any, None), Anchored("net", tree, {}, tree))
    seen = cast(Anchored, leading.message)
    assert leading.trees == [tree, tree]
    slots = {id(seen.params): 0, id(seen.anchor): 1}
    make = making({"near": seen.anchor, "model": Model("net", seen.params)}, lambda its: slots.get(id(its)))
    made = make([tree, other])
    assert (made["near"], made["model"].params) == (other, tree)
    assert (seen.params["w"].tolist(), seen.anchor["w"].tolist()) == ([1, 1], [1, 1])


async def _takes_a_dictionary(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit(Model(message.architecture, message.params | {}))
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


def test_hooks_of_private_algorithms_get_dictionaries_and_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FedAvg, "__module__", "my_algorithms")
    shared, num_shared = run_with(_takes_a_dictionary, {"run.rounds": 4}, drives=True)
    assert shared == run_with(_takes_a_dictionary, {"run.rounds": 4}, drives=False)[0]
    assert 4 <= num_shared < 20


async def _asks_for_the_round(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit(message.model, steps=client.round)
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def _looks_at_the_message(client: Any, state: Any, message: Any) -> Any:
    doubled = {name: 2 * array for name, array in message.params.items()}
    fitted = await client.fit(Model(message.architecture, doubled))
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def _sends_back_too(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit({"model": message.model, "teacher": message.model}, trained=("model",))
    model = Model(fitted.models["model"].architecture, fitted.models["model"].params, message.buffers)
    return state, ModelUpdate.of(model, num_samples=client.num_samples())


async def _stays_near(client: Any, state: Any, message: Any) -> Any:
    fitted = await client.fit(message.model, **held_near(message.model, 0.3))
    return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


@pytest.mark.parametrize(
    ("hook", "changes", "is_once"),
    [
        (_plain, {}, True),
        (_twice, {}, True),
        (_constant, {}, True),
        (_sends_back_too, {}, True),
        (_stays_near, {}, True),
        (_plain, {"training.schedule": {"name": "step", "params": {"step_size": 1}}}, False),
        (_asks_for_the_round, {}, False),
        (_looks_at_the_message, {}, False),
    ],
)
@pytest.mark.parametrize("executor", ["threads", "null"])
def test_what_a_hook_does_is_kept_for_later_rounds(
    hook: Callable[..., Any], changes: Mapping[str, Any], is_once: bool, executor: str
) -> None:
    changes = {"run.rounds": 4, "participation.clients_per_round": 6, "engine.executor": executor, **changes}
    shared, num_shared = run_with(hook, changes, drives=True)
    alone, num_alone = run_with(hook, changes, drives=False)
    assert shared == alone
    assert num_alone == 24
    num_kinds = len(set(build(load_scenario(SIMPLE)).data.sizes_of(np.arange(6), "train").tolist()))
    assert num_shared == num_kinds * (1 if is_once else 4)
