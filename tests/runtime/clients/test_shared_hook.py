"""A hook runs once for several clients only where each client's own would do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.algorithms.fedavg import FedAvg
from fedsim.clock import Trace, now_s
from fedsim.engine.jobs import Stream
from fedsim.params import Form, Model, PendingTree
from fedsim.runtime.clients.cohort import Cohort
from fedsim.runtime.clients.shared_hook import _making
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario
from fedsim.wire import ModelUpdate

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
            patch.setattr("fedsim.runtime.run.cohort_drivers", lambda *_: None)
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


def test_a_reply_is_made_with_other_trees_in_its_places() -> None:
    form = Form.of({"w": np.zeros(2)})
    first, second, strange = (_tree(form, value) for value in (1, 2, 3))
    slots = {id(first): 0, id(second): 1}
    reply = ModelUpdate.of(Model("net", first), num_samples=7)
    make = _making({"a": [reply, 5], "b": (second, "x")}, slots)
    assert make is not None
    made = make([_tree(form, 4), _tree(form, 5)])
    (message, five), (tree, x) = made["a"], made["b"]
    assert (five, x, message.num_samples, message.architecture) == (5, "x", 7, "net")
    assert (message.params["w"].tolist(), tree["w"].tolist()) == ([4, 4], [5, 5])
    assert message.model.params["w"].tolist() == [4, 4]
    assert type(message) is ModelUpdate
    assert _making({"a": [1, np.zeros(2)]}, slots) is None
    with pytest.raises(KeyError):
        _making([strange], slots)
    with pytest.raises(KeyError):
        _making(Model("net", first), slots)
    strange.computed()
    assert _making([strange], slots) is None
    assert partial(_making, first, slots)() is not None
