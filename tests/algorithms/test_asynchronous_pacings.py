"""One suite over every algorithm: asynchronous pacings run it, or refuse it with the reason."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from fedsim.algorithms.base import Algorithm
from fedsim.errors import RunError, UserError
from fedsim.plugins import available
from fedsim.runtime.policies.pacing.asynchronous import Buffered, Immediate
from fedsim.runtime.policies.pacing.base import Pacing
from fedsim.runtime.run import RunResult
from fedsim.walk import parts

ACCEPTED: dict[str, dict[str, Any]] = {
    "apfl": {},
    "ditto": {},
    "fedasync": {},
    "fedavg": {},
    "fedavg_ft": {"finetune_epochs": 1},
    "fedbuff": {},
    "fedper": {},
    "fedprox": {},
    "fml": {},
    "hypcluster": {},
    "ifca": {},
    "local": {"follow_selection": True},
    "mapper": {"lambdas": [0.5]},
    "moon": {},
    "perfedavg": {},
    "persfl": {"lambdas": [0.5], "temperatures": [1.0], "distill_epochs": 1},
    "persfl_gd": {"lambdas": [0.5], "temperatures": [1.0], "distill_epochs": 1},
    "pfedme": {},
}
"""Algorithms that merge stale replies, with settings that allow it or make the run short; others refuse."""
WHY = {
    **dict.fromkeys(("dsfl", "fedmd", "ktpfl", "l2sgd", "sim_pfd", "topk_pfd"), "its round has 2 exchanges"),
    "fedme": "its round has 2 exchanges",
    "centralized": "it asks all clients at once",
    **dict.fromkeys(("fedadagrad", "fedadam", "fedavgm", "fedyogi"), "would count as a change"),
    "scaffold": "a control that the client has taken back",
    "fedgems": "predictions are on the samples of one round",
}
"""Why others refuse: most keep each client's last upload, or learn from the predictions of a cohort."""
REFUSED = [found.name for found in available("fedsim.algorithms") if found.name not in ACCEPTED]
NOT_SO = {
    (
        "local",
        "follow_selection",
        False,
    ): "participation.pacing: 'buffered' merges replies of several versions",
    ("pfedme", "all_train", True): "its round has 2 exchanges",
    ("ifca", "restart_rounds", 2): r"algorithm\.params\.restart_rounds: 'buffered' merges replies for models",
    ("ifca", "option", "grad_avg"): r"algorithm\.params\.option: 'buffered' merges gradients at models",
}
"""Parameters with which one that is accepted is refused."""


def _pacing(kind: str, **params: Any) -> Pacing[Any]:
    if kind == "buffered":
        return Buffered(Buffered.Config(**params))
    return Immediate(Immediate.Config(**params))


USUAL: dict[str, dict[str, Any]] = {
    "buffered": {"concurrency": 4, "buffer": 3, "staleness": "polynomial"},
    "immediate": {"concurrency": 4},
}
WORLD: dict[str, Any] = {"num_clients": 6, "clients_per_round": 3, "rounds": 3}


def _run(name: str, kind: str, world: Any, **changes: Any) -> RunResult:
    algorithm = world.algorithm(name, **ACCEPTED[name])
    result: RunResult = world.run(algorithm, pacing=_pacing(kind, **USUAL[kind]), **WORLD, **changes)
    return result


def _merges(result: RunResult) -> Counter[tuple[int, int]]:
    """Return how often each client is in each merge, by merge and client."""
    table = result.dispatches.columns()
    in_rounds = table["round"] <= WORLD["rounds"]
    merged = in_rounds & (table["outcome"] == "merged")
    return Counter(
        zip(
            (table["version"] + table["staleness"])[merged].tolist(),
            table["client"][merged].tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("kind", USUAL)
@pytest.mark.parametrize("name", ACCEPTED)
def test_who_is_accepted_merges_what_comes(name: str, kind: str, world: Any) -> None:
    first = _run(name, kind, world)
    assert not first.rejections
    merges = _merges(first)
    merged, replies = {merge for merge, _ in merges}, merges.total()
    assert len(merged) == (3 if kind == "buffered" else 9)
    assert replies == 9
    if kind == "buffered":  # fast clients come back before slow ones are done
        assert max(merges.values()) > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", USUAL)
@pytest.mark.parametrize("name", ACCEPTED)
def test_workers_and_batching_change_nothing_one_by_one(name: str, kind: str, world: Any) -> None:
    hashes = {
        (result.trace_hash, result.model_hash)
        for workers, batching in product((1, 2), ("auto", "off"))
        for result in [_run(name, kind, world, workers=workers, batching=batching)]
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("kind", USUAL)
@pytest.mark.parametrize("name", REFUSED)
def test_who_is_refused_says_why(name: str, kind: str, world: Any) -> None:
    algorithm = world.algorithm(name)
    changes = {**WORLD, "pacing": _pacing(kind, **USUAL[kind])}
    (fault,) = world.parts(algorithm, **changes).misfits()
    assert fault.path == "participation.pacing"
    assert WHY.get(name, "it does not say what a stale reply counts") in str(fault)
    with pytest.raises(UserError, match=f"{kind!r} merges replies of several versions, and {name!r} cannot"):
        world.run(algorithm, **changes)


@pytest.mark.parametrize(("name", "option", "value"), NOT_SO)
def test_parameters_may_not_go_with_it(name: str, option: str, value: Any, world: Any) -> None:
    algorithm = world.algorithm(name, **{**ACCEPTED[name], option: value})
    with pytest.raises(UserError, match=NOT_SO[name, option, value]):
        world.run(algorithm, pacing=_pacing("buffered", **USUAL["buffered"]), **WORLD)


@pytest.mark.parametrize("kind", USUAL)
def test_a_run_to_which_nobody_replies_ends(kind: str, world: Any) -> None:
    pacing = _pacing(kind, **{**USUAL[kind], "concurrency": 3})
    silence = {"lost": lambda parcel, ordinal: parcel.receiver < 0, "client_timeout_s": 5.0}
    with pytest.raises(
        RunError, match="303 dispatches in a row ended without a reply: give clients more time"
    ):
        world.run(world.algorithm("fedbuff"), pacing=pacing, **WORLD, **silence)


def _mirrored(value: Any) -> Iterator[str]:
    if dataclasses.is_dataclass(value):
        yield from (one.name for one in dataclasses.fields(value) if one.metadata.get("mirrored"))
    for part in parts(value).values():
        yield from _mirrored(part)


@pytest.mark.parametrize("name", [*ACCEPTED, "scaffold"])
def test_clients_that_are_asked_again_mirror_nothing_that_waits_for_its_merge(
    name: str, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm: Algorithm[Any, Any, Any] = world.algorithm(name, **ACCEPTED.get(name, {}))
    states, join = list[Any](), algorithm.join

    def watching(client: Any) -> Any:
        states.append(join(client))
        return states[-1]

    monkeypatch.setattr(algorithm, "join", watching)
    world.run(algorithm, num_clients=1, rounds=1, training={"steps": 0}, verify=False)
    assert states
    assert bool([field for state in states for field in _mirrored(state)]) == (name == "scaffold")
