"""Codecs under every algorithm: the same models in memory and over sockets, and what clients leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsim.algorithms.base import Algorithm, Exchange
from fedsim.algorithms.l2sgd import LocalSteps
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.errors import RunError
from fedsim.network import Parcel
from fedsim.params import Tree, freeze
from fedsim.plugins import available
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.run import kinds_of, run
from fedsim.scenario import load_scenario, resolved_toml
from fedsim.wire import Message, counted, message
from fedsim.wire.codecs.choices import CodecConfig

NAMES = [found.name for found in available("fedsim.algorithms")]
TOP = {"name": "topk", "params": {"share": 0.3}}


def codec(up: Any = (), down: Any = (), logits: Any = (), feedback: bool = False, least: str = "1 B") -> Any:
    """Return codecs: of models up and down, and of predictions both ways."""
    predictions = {"chain": list(logits), "least": least}
    return CodecConfig.model_validate(
        {
            "up": {
                "models": {"chain": list(up), "error_feedback": feedback, "least": least},
                "logits": predictions,
            },
            "down": {"models": {"chain": list(down), "least": least}, "logits": predictions},
        }
    )


ALL = codec(["int8"], ["bfloat16"], ["int8"])


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_runs_with_codecs_and_sends_less(name: str, world: Any) -> None:
    parts = world.parts(world.quick(name), codec=ALL, verify=True)
    result, plain = world.run(world.quick(name), codec=ALL, verify=True), world.run(world.quick(name))
    assert not result.rejections
    coded, without = result.totals, plain.totals
    for way in ("up", "down"):
        assert getattr(coded, f"bytes_plain_{way}") == getattr(without, f"bytes_{way}")
        assert getattr(coded, f"parameters_{way}") == getattr(without, f"parameters_{way}")
        assert getattr(coded, f"bytes_{way}") <= getattr(without, f"bytes_{way}")
    assert (coded.bytes_up < without.bytes_up) == (coded.parameters_up > 0)
    assert {kind for kind in kinds_of(parts) if kind.endswith("+coded")}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_is_the_same_over_sockets(name: str, world: Any) -> None:
    world.check_every_way(lambda: world.quick(name), codec=ALL, workers=(2,))


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("fedavg", ["delta", TOP, "int8"]),
        ("fedavg", ["delta", {"name": "randk", "params": {"share": 0.3}}]),
        ("ditto", ["delta", "sign"]),
        ("scaffold", ["ternary"]),
        ("fedprox", ["delta", "lowrank", "int4"]),
    ],
)
def test_changes_are_coded_with_feedback(name: str, chain: list[Any], world: Any) -> None:
    chosen = codec(chain, ["float16"], feedback=True)
    world.check_every_way(lambda: world.quick(name), codec=chosen, workers=(2,))


@message("talk")
class Talk(Message):
    """A change of two numbers."""

    params: Tree = counted()


class Constant(Algorithm[Config, tuple[Any, ...], Any]):
    """Every client always sends the same change; the server keeps what it gets of client 0."""

    messages: ClassVar[tuple[type[Message], ...]] = (Talk,)

    def __init__(self) -> None:
        super().__init__(Config())

    @property
    def exchanges(self) -> Any:
        return (Exchange("talk", local=self.local, merge=self.merge, reply=Talk, changes=("params",)),)

    def start(self, server: Any) -> tuple[Any, ...]:
        return ()

    async def local(self, client: Any, state: Any, received: None) -> Any:
        return state, Talk(freeze({"w": np.array([3, 2], np.float32)}))

    async def merge(self, server: Any, state: tuple[Any, ...], replies: Sequence[Any]) -> tuple[Any, ...]:
        mine = [reply.message.params["w"].tolist() for reply in replies if reply.client == 0]
        return (*state, *mine)

    async def models_of(self, observer: Any, server_state: Any, client_state: Any) -> Any:
        return {}


def received(world: Any, **changes: Any) -> list[list[float]]:
    algorithm = Constant()
    states = world.results(algorithm, "merge")
    half = codec([{"name": "topk", "params": {"share": 0.5}}], feedback=True)
    world.run(algorithm, codec=half, rounds=4, **changes)
    return [list(one) for one in states[-1]]


def test_what_is_left_out_is_sent_next_time(world: Any) -> None:
    # The changes are (3, 2), (3, 2) + (0, 2), (3, 2) + (3, 0) and (3, 2) + (0, 2): each time the larger one.
    assert received(world) == [[3, 0], [0, 4], [6, 0], [0, 4]]


def test_what_a_lost_reply_has_left_out_does_not_count(world: Any) -> None:
    replies = [0]

    def lost(parcel: Parcel, ordinal: int) -> bool:
        replies[0] += parcel.sender == 0
        return parcel.sender == 0 and replies[0] == 2

    # The second reply is lost, so the third is what the second was.
    assert received(world, lost=lost, client_timeout_s=60.0) == [[3, 0], [0, 4], [6, 0]]


class Answering(Constant):
    """The same, and a further exchange in which clients send no model."""

    @property
    def exchanges(self) -> Any:
        return (*super().exchanges, Exchange("small", local=self.answer, reply=LocalSteps))

    async def answer(self, client: Any, state: Any, received: None) -> Any:
        return state, LocalSteps(1)

    messages = (Talk, LocalSteps)


def test_a_later_exchange_does_not_make_a_lost_reply_count(world: Any) -> None:
    replies = [0]

    def lost(parcel: Parcel, ordinal: int) -> bool:
        replies[0] += parcel.sender == 0
        return parcel.sender == 0 and replies[0] == 1

    algorithm = Answering()
    states = world.results(algorithm, "merge")
    half = codec([{"name": "topk", "params": {"share": 0.5}}], feedback=True)
    world.run(algorithm, codec=half, rounds=4, lost=lost, client_timeout_s=60.0)
    assert [list(one) for one in states[-1]] == [[3, 0], [0, 4], [6, 0]]


def test_error_feedback_is_refused_where_a_field_holds_one_model_and_another(world: Any) -> None:
    chosen = codec([TOP], feedback=True)
    parts = world.parts(world.algorithm("ifca", option="grad_avg"), codec=chosen)
    assert [fault.path for fault in parts.misfits()] == ["codec.up.models.error_feedback"]


@message("logits_up+coded")
class Hostile(Message):
    """What calls itself a coded message, and is none."""

    values: Tree
    form: Literal["logits", "probs"]
    temperature: float
    indices_digest: int
    indices: NDArray[np.int64] | None


@pytest.mark.parametrize(
    "values",
    [
        {"": np.array(1.0, np.float32)},
        {"": np.zeros((3, 4), np.int64)},
        {"x": np.zeros((3, 4), np.float32)},
        {"": np.empty((0, 2**15, 2**15), np.float32)},
        {
            "": np.empty((0, 40, 10), np.float32),
            "+0": np.zeros(400, np.int8),
            "+1": np.full(2, -1, np.float32),
        },
    ],
    ids=["shape", "dtype", "names", "size", "scales"],
)
def test_a_hostile_reply_ends_no_run(values: Tree, world: Any) -> None:
    def lie(client: Any, reply: Any) -> Any:
        if client.client != 0:
            return reply
        return Hostile(values, "probs", reply.temperature, reply.indices_digest, reply.indices)

    lying = world.lying(world.quick("fedmd"), "local_share", lie)
    result = world.run_over_sockets(lying, codec=codec(logits=["int8"]), client_timeout_s=0.5)
    assert result.by_client["merged"][1:].all()
    assert result.by_client["asked"][0] > result.by_client["merged"][0]
    assert result.rejections.total() + result.ledger.outcomes()["undecodable"] == 3


def test_values_that_are_not_finite_are_rejected_with_their_length(world: Any) -> None:
    def spoil(client: Any, reply: Any) -> Any:
        params = {name: array.copy() for name, array in reply.params.items()}
        if client.client == 1:
            next(iter(params.values())).reshape(-1)[0] = np.nan
        return type(reply)(reply.architecture, params, reply.buffers, reply.num_samples)

    lying = world.lying(world.quick("fedavg"), "train", spoil)
    result = world.run(lying, codec=codec(["delta", TOP, "int8"], feedback=True))
    plain = world.run(world.quick("fedavg"), codec=codec(["delta", TOP, "int8"], feedback=True))
    assert result.rejections.total() == 3
    assert [*result.rejections] == ["params holds NaN or an infinity"]
    assert result.totals.bytes_up == plain.totals.bytes_up
    assert result.non_finite is None


def jobs(world: Any, **changes: Any) -> set[tuple[str, bool]]:
    """Return the names of the jobs of a run, and whether the server does them."""
    trace = Trace(keep=True)
    run(world.parts(world.quick("fedavg"), **changes), trace=trace)
    return {(name, client < 0) for _, kind, client, _, name, *_ in trace.kept if kind == "job_start"}


def test_a_codec_costs_time_at_both_ends(world: Any) -> None:
    assert jobs(world) == {("fit", False)}
    assert jobs(world, codec=codec(["int8"], ["float16"])) == {
        ("fit", False),
        ("call", False),
        ("call", True),
    }


def test_no_model_to_subtract_is_told(world: Any) -> None:
    chosen = codec(["delta", "int8"])
    literal = world.parts(world.algorithm("fedme", literal_upload=True), codec=chosen)
    (fault,) = literal.misfits()
    assert "exchange 'upload' of 'fedme' sends none down" in str(fault)
    with pytest.raises(RunError, match="no model of its form came down with exchange 'learn'"):
        world.run(world.quick("fedme"), codec=chosen, models=("mlp", "linear"))


def test_feedback_is_refused_where_a_client_may_be_asked_again_before(world: Any) -> None:
    chosen = codec(["delta", TOP], feedback=True)
    parts = world.parts(world.quick("fedavg"), codec=chosen)
    asynchronous = world.parts(
        world.quick("fedavg"), codec=chosen, pacing=Buffered(Buffered.Config(concurrency=2, buffer=2))
    )
    assert not [fault for fault in parts.misfits() if "codec" in fault.path]
    (fault,) = [fault for fault in asynchronous.misfits() if "codec" in fault.path]
    assert (fault.path, "asked again" in fault.problem) == ("codec.up.models.error_feedback", True)


def test_whole_models_are_no_changes(world: Any) -> None:
    def faults(name: str, **given: Any) -> list[str]:
        parts = world.parts(world.quick(name), codec=codec(**given))
        return [str(fault) for fault in parts.misfits() if fault.path.startswith("codec")]

    (fault,) = faults("fedavg", up=["topk"])
    assert "codes changes of models, and exchange 'train' of 'fedavg' sends whole models" in fault
    (fault,) = faults("fedavg", up=["int8"], feedback=True)
    assert "error feedback is for changes of models" in fault
    assert not faults("fedbuff", up=["topk"])
    assert not faults("scaffold", up=["topk"], feedback=True)


def test_a_run_without_codecs_is_what_it_was(world: Any) -> None:
    scenario = load_scenario("quickstart", {"run.rounds": 1})
    assert "codec" not in resolved_toml(scenario)
    coded = load_scenario("quickstart", {"run.rounds": 1, "codec.up.models.chain": ["int8"]})
    assert "[codec.up]" in resolved_toml(coded)
