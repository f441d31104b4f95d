"""PersFL: the specification's sanity checks (5.E.6)."""

import asyncio
from math import inf, log
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.common.fine_tuning import Tuned
from fedsim.algorithms.fedavg_ft import FedAvgFT, FedAvgFTConfig
from fedsim.algorithms.persfl import ClientState, Imitating, considered
from fedsim.engine.jobs import Fitted, Score
from fedsim.engine.losses import Batch
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model
from fedsim.runtime.run import run
from fedsim.wire import ModelBroadcast
from tests.algorithms.stand_ins import Client, nth

SCALARS = 64 * 16 + 16 + 16 * 10 + 10
NEW = ClientState()
SHORT: dict[str, Any] = {"lambdas": [0.0, 0.5], "temperatures": [1.0, 5.0], "distill_epochs": 2}


def watched(world: Any, **params: Any) -> tuple[Any, dict[int, tuple[Any, Model]]]:
    """Return an algorithm and, once it has run, each client's last state with the final model."""
    algorithm, seen = world.algorithm("persfl", **params), dict[int, tuple[Any, Model]]()

    def keep(client: Any, state: Any, message: Any, result: Any) -> None:
        seen[client.client] = result[0], message.model

    world.recorded(algorithm, "local_distil", keep)
    return algorithm, seen


def _close(left: Model, right: Model, tolerance: float) -> bool:
    return all(np.allclose(left.params[name], right.params[name], atol=tolerance) for name in left.params)


def _loss(imitating: Imitating, logits: Any, teacher: Any, labels: Any) -> torch.Tensor:
    student = torch.as_tensor(logits)
    batches = {"train": Batch(torch.zeros(len(student), 1), torch.as_tensor(labels))}
    return imitating({"model": lambda x: student}, batches, {"teacher": torch.as_tensor(teacher)})  # type: ignore[dict-item]


# The loss


def test_loss_by_hand() -> None:
    # Student (1/2, 1/2), teacher (3/4, 1/4) at temperature 1; the label is the second class.
    student, teacher = [[0.0, 0.0]], [[log(3.0), 0.0]]
    hard = log(2)
    forward = 0.75 * log(1.5) + 0.25 * log(0.5)
    reverse = 0.5 * log(2 / 3) + 0.5 * log(2)
    for soft, expected in (("forward", forward), ("reverse", reverse), ("cross_entropy", log(2))):
        loss = _loss(Imitating(0.25, 1.0, soft), student, teacher, [1])  # type: ignore[arg-type]
        assert float(loss) == pytest.approx(0.75 * hard + 0.25 * expected, abs=1e-6)
    half = _loss(Imitating(1.0, 1.0, "forward", per_class=True), student, teacher, [1])
    assert float(half) == pytest.approx(forward / 2, abs=1e-6)


def test_temperature_divides_both_logits_and_scales_the_loss() -> None:
    # At temperature 2 the teacher of twice the logits is again (3/4, 1/4); the factor is 4.
    loss = _loss(Imitating(1.0, 2.0), [[0.0, 0.0]], [[2 * log(3.0), 0.0]], [1])
    assert float(loss) == pytest.approx(4 * (0.75 * log(1.5) + 0.25 * log(0.5)), abs=1e-6)


def test_loss_stays_finite_for_a_certain_teacher() -> None:
    logits = torch.tensor([[0.0, -400.0]], requires_grad=True)
    for soft in ("forward", "reverse", "cross_entropy"):
        loss = _loss(Imitating(1.0, 1.0, soft), logits, [[-400.0, 0.0]], [1])
        (gradient,) = torch.autograd.grad(loss, logits)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()


# The grid, and the choice


def test_grid_tries_weight_zero_once(world: Any) -> None:
    grid = world.algorithm("persfl").grid
    assert len(grid) == 29
    assert grid[:3] == ((0.0, 1.0), (0.25, 1.0), (0.25, 5.0))
    assert grid[-1] == (1.0, 25.0)


class _Client(Client):
    """A client whose fits give models named after the pair, with losses as told."""

    client, round, training = 0, 4, TrainingConfig()

    def __init__(self, losses: dict[str, float], num_val: int = 5) -> None:
        super().__init__(num_val)
        self.losses, self.noted = losses, list[tuple[str, dict[str, Any]]]()

    def note(self, event: str, **values: Any) -> None:
        self.noted.append((event, values))

    async def predict(self, model: Model, samples: Any) -> Any:
        return np.zeros((7, 2), np.float32)

    async def fit(self, model: Model, *, name: str, **_: Any) -> Fitted:
        return Fitted({"model": Model(name, {})}, 0.0, 1)

    async def evaluate(self, model: Model, samples: Any) -> Score:
        assert samples == "val"  # whoever teaches or is chosen, training and test samples have no say
        return Score(0, 1, self.losses[model.architecture])

    def initial_model(self) -> Model:
        return Model("initial", {})


def _distilled(world: Any, client: _Client, state: ClientState = NEW, **params: Any) -> Any:
    algorithm = world.algorithm("persfl", **{**SHORT, **params})
    message = ModelBroadcast.of(Model("final", {}))
    after, reply = asyncio.run(algorithm.local_distil(client, state, message))
    assert reply is None
    return after


def test_the_smallest_validation_loss_wins_and_ties_go_to_the_first(world: Any) -> None:
    losses = {"final": 1.0, "distil 0 1": 0.5, "distil 0.5 1": 0.25, "distil 0.5 5": 0.25}
    client = _Client(losses)
    state = _distilled(world, client)
    assert state.personal.architecture == "distil 0.5 1"
    assert (state.pair, state.teacher_round) == ((0.5, 1.0), 3)  # after round 3 of 3 comes the closing
    assert client.noted == [("student chosen", {"teacher_round": 3, "weight": 0.5, "temperature": 1.0})]


def test_where_no_loss_is_a_number_the_first_pair_wins(world: Any) -> None:
    nan = float("nan")
    losses = {"final": nan, "distil 0 1": nan, "distil 0.5 1": nan, "distil 0.5 5": inf}
    state = _distilled(world, _Client(losses))
    assert (state.teacher.architecture, state.personal.architecture) == ("final", "distil 0 1")
    assert (state.pair, state.teacher_round) == ((0.0, 1.0), 3)


def test_without_validation_samples_the_final_model_teaches_with_one_pair(world: Any) -> None:
    client = _Client({}, num_val=0)
    state = _distilled(world, client, ClientState(Model("early", {}), 0.1))
    assert (state.teacher.architecture, state.personal.architecture) == ("final", "distil 0.5 5")
    assert [event for event, _ in client.warnings] == ["no validation samples"]
    assert (state.pair, state.teacher_round) == ((0.5, 5.0), 3)


@pytest.mark.parametrize(
    ("teacher", "loss", "expected"),
    [("best", 0.9, "final"), ("best", 0.8, "early"), ("best", 0.7, "early"), ("final", 0.7, "final")],
)
def test_only_a_strictly_better_final_model_replaces_the_teacher(
    teacher: str, loss: float, expected: str, world: Any
) -> None:
    losses = dict.fromkeys(("distil 0 1", "distil 0.5 1", "distil 0.5 5"), 1.0)
    client = _Client({**losses, "final": 0.8})
    state = _distilled(world, client, ClientState(Model("early", {}), loss, 1), teacher=teacher)
    assert state.teacher.architecture == expected
    assert state.teacher_round == {"early": 1, "final": 3}[expected]


def test_a_model_is_considered_by_its_loss_unless_it_is_the_initial_one() -> None:
    client: Any = _Client({"a": 2.0, "b": 1.0, "c": 1.0, "initial": 0.5})

    async def all_four() -> Any:
        state = ClientState()
        for name in ("a", "initial", "b", "c"):
            state = await considered(client, state, Model(name, {}))
        return state

    state = asyncio.run(all_four())
    assert (state.teacher.architecture, state.loss) == ("b", 1.0)


# Whole runs


class _Tuned(FedAvgFT):
    """FedAvg, then passes in the order in which PersFL's first student meets its samples."""

    async def local_finetune(self, client: Any, state: Any, message: Any) -> Any:
        fitted = await client.fit(message.model, epochs=2, name="distil 0 1")
        return Tuned(state, fitted.model), None


@pytest.mark.parametrize("temperature", [1.0, 25.0])
def test_weight_zero_is_fine_tuning_bit_for_bit(temperature: float, world: Any) -> None:
    params = {**SHORT, "lambdas": [0.0], "temperatures": [temperature], "teacher": "final"}
    assert (
        world.run(world.algorithm("persfl", **params)).model_hash
        == world.run(_Tuned(FedAvgFTConfig())).model_hash
    )


def test_weight_one_leaves_the_teacher_as_it_is(world: Any) -> None:
    algorithm, seen = watched(world, lambdas=[1.0], temperatures=[1.0, 25.0], distill_epochs=5)
    world.run(algorithm)
    assert len(seen) == 4
    for state, _ in seen.values():
        assert _close(state.personal, state.teacher, 1e-5)


def test_stage_two_sends_nothing_but_the_final_model(world: Any) -> None:
    result, fedavg = (
        world.run(world.algorithm(name, **p)) for name, p in (("persfl", SHORT), ("fedavg", {}))
    )
    closing = result.rounds[-1]
    assert closing.round == 4
    assert (closing.traffic.frames_down, closing.traffic.frames_up) == (4, 0)
    assert closing.traffic.parameters_down == 4 * SCALARS
    before = result.totals - closing.traffic
    assert before == fedavg.totals
    # Frames differ by the exchange's name, and by what alignment makes of it.
    assert abs(closing.traffic.bytes_down - fedavg.totals.bytes_down // 3) <= 4 * 16


def test_rounds_are_those_of_fedavg(world: Any) -> None:
    # Measuring takes time, and changes nothing that travels.
    result, fedavg = (
        world.run(world.algorithm(name, **p)) for name, p in (("persfl", SHORT), ("fedavg", {}))
    )
    assert [row.accuracy.mean for row in result.rounds[:3]] == [row.accuracy.mean for row in fedavg.rounds]
    assert result.rounds[2].ended_at_s > fedavg.rounds[2].ended_at_s
    final = world.run(world.algorithm("persfl", **SHORT, teacher="final"))
    assert final.rounds[2].ended_at_s == fedavg.rounds[2].ended_at_s


def test_teacher_and_global_model_are_measured_beside(world: Any) -> None:
    result = world.run(world.algorithm("persfl", **SHORT))
    assert all(not row.accuracy.others for row in result.rounds[:3])
    assert list(result.final.others) == ["teacher"]
    assert result.final.global_ is not None
    assert result.final.mean > result.rounds[2].accuracy.mean


def test_teachers_are_kept_when_an_upload_is_lost(world: Any) -> None:
    # Of client 0 nothing arrives at the server: it has measured the first round's result all the same.
    algorithm = world.algorithm("persfl", **SHORT)
    turns = world.recorded(algorithm, "train", lambda client, state, *_: (client.client, state.loss))
    world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender == 0, client_timeout_s=9.0)
    # What it gets in the first round is the initial model, which is no teacher.
    met = [loss for client, loss in turns if client == 0]
    assert met[:2] == [inf, inf]
    assert met[2] < inf


@pytest.mark.parametrize(("silent", "rounds"), [(0, (1, 2, 3)), (1, (2, 3)), (2, (3,)), (3, (3,))])
def test_the_initial_model_is_no_teacher_wherever_it_comes(
    silent: int, rounds: tuple[int, ...], world: Any
) -> None:
    # Where the first rounds' uploads are lost, their results are the initial model; what is trained is worse.
    algorithm, seen = watched(world, **SHORT)
    lost = nth(range(1, 4 * silent + 1), receiver=-1)
    parts = world.parts(algorithm, training={"lr": 20.0}, lost=lost, client_timeout_s=60.0)
    result = run(parts)
    assert [row.merged for row in result.rounds[:3]] == [0] * silent + [4] * (3 - silent)
    start = parts.initial()("mlp").digest()
    assert len(seen) == 4
    for state, final in seen.values():
        assert state.teacher_round in rounds
        # Where no round has merged anything there is no other.
        assert (state.teacher.digest() == start) is (silent == 3)
        assert silent < 3 or state.teacher.digest() == final.digest()


def test_the_teacher_is_bit_for_bit_the_global_model_of_the_least_validation_loss(world: Any) -> None:
    # Of those that came after a round and as they came, not as the client has trained them since.
    algorithm, seen = watched(world, **SHORT)
    met: dict[int, list[tuple[float, bytes, int]]] = {client: [] for client in range(4)}
    train, distil = algorithm.train, algorithm.local_distil

    async def measure(client: Any, model: Model) -> None:
        loss = (await client.evaluate(model, client.own("val"))).loss
        met[client.client].append((loss, model.digest(), client.round - 1))

    async def watched_train(client: Any, state: Any, message: Any) -> Any:
        if client.round > 1:
            await measure(client, message.model)
        return await train(client, state, message)

    async def local_distil(client: Any, state: Any, message: Any) -> Any:
        await measure(client, message.model)
        return await distil(client, state, message)

    algorithm.train, algorithm.local_distil = watched_train, local_distil
    world.run(algorithm, rounds=5, training={"epochs": 4, "lr": 1.0})
    assert [len(models) for models in met.values()] == [5] * 4
    least = {client: min(models, key=lambda one: one[0]) for client, models in met.items()}
    for client, (loss, digest, number) in least.items():
        state, _ = seen[client]
        assert (state.loss, state.teacher.digest(), state.teacher_round) == (loss, digest, number)
    assert {number for _, _, number in least.values()} - {5}, "somewhere it is not the last"


def test_who_gets_no_final_model_counts_with_the_global_one_among_the_teachers(world: Any) -> None:
    algorithm = world.algorithm("persfl", **SHORT, teacher="final")
    fedavg = world.run(world.algorithm("fedavg"))
    result = world.run(
        algorithm,
        lost=lambda parcel, ordinal: ordinal >= 24 and bool(parcel.receiver == 0),
        client_timeout_s=60.0,
    )
    assert result.rounds[-1].dropped == 1
    assert result.final.others == {"teacher": fedavg.final.mean}
