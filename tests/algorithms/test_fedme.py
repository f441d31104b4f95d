"""FedMe: the specification's sanity checks (5.E.9)."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from math import log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.base import Reply, Setting
from fedsim.algorithms.fedme import (
    EXCHANGED,
    NOBODY,
    PERSONAL,
    Enrolment,
    ExchangedModel,
    ModelPair,
    MutualLearning,
    ServerState,
    Stored,
    draw,
    means_of_copies,
    outputs_of,
)
from fedsim.engine.losses import Batch
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent, Work
from fedsim.errors import UserError
from fedsim.params import Model
from fedsim.ranges import MAX_ROUNDS
from fedsim.rng import Key
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.run import run
from fedsim.task import Task
from fedsim.wire import ModelUpdate, num_parameters
from tests.algorithms.stand_ins import Client, nth

MIXED = {"models": ("mlp", "linear")}
MLP, LINEAR = 64 * 16 + 16 + 16 * 10 + 10, 64 * 10 + 10


class Watch:
    """Remembers what goes through an algorithm's hooks."""

    def __init__(self, world: Any, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.clients: dict[int, Model] = {}
        self.sent = world.recorded(algorithm, "instruct_learn", lambda *call: call[-1][1])
        self.settled = world.recorded(algorithm, "instruct_settle", lambda *call: call[-1][1])
        self.states = world.results(algorithm, "merge_settle")
        self.pairs = world.recorded(algorithm, "merge_learn", self._messages)
        for hook in ("local_learn", "local_settle"):
            world.recorded(algorithm, hook, self._client)

    def _messages(self, server: Any, state: Any, replies: Any, after: Any) -> dict[int, ModelPair]:
        return {reply.client: reply.message for reply in replies}

    def _client(self, client: Any, state: Any, message: Any, result: Any) -> None:
        self.clients[client.client] = result[0]


# What it equals


def test_one_client_equals_local_bit_for_bit(world: Any) -> None:
    fedme, local = world.algorithm("fedme"), world.algorithm("local")
    ours, its = world.watched(fedme), world.watched(local)
    for algorithm in (fedme, local):
        world.run(algorithm, num_clients=1, training={"epochs": 2})
    assert ours[0]["untuned"].digest() == its[0]["personal"].digest()


def test_without_switches_everyone_keeps_its_architecture_and_its_line(world: Any) -> None:
    watch = Watch(world, world.algorithm("fedme", mt=False, dml=False, mc=False))
    world.run(watch.algorithm)
    for sent, pairs, settled in zip(watch.sent, watch.pairs, watch.settled, strict=True):
        for client, pair in pairs.items():
            assert pair.chosen == client
            assert pair.owner == sent[client].owner != client
            copies: list[Any] = [pair.personal, *(p.exchanged for p in pairs.values() if p.owner == client)]
            mean = np.mean([copy.params["head.bias"] for copy in copies], axis=0, dtype=np.float64)
            assert np.allclose(settled[client].params["head.bias"], mean, atol=1e-7)


# What travels


def test_parameters_are_twice_fedavgs(world: Any) -> None:
    result, fedavg = world.run(world.algorithm("fedme")), world.run(world.algorithm("fedavg"))
    opening = result.rounds[0].traffic
    assert (opening.parameters_up, opening.parameters_down) == (0, 0)
    assert (opening.frames_up, opening.frames_down) == (4, 0)
    assert opening.bytes_up < 4 * 150  # a label, and no model
    rounds = result.totals - opening
    assert rounds.parameters_up == 2 * fedavg.totals.parameters_up
    assert rounds.parameters_down == 2 * fedavg.totals.parameters_down
    # Arrays are equally many bytes; what is left is envelopes.
    ours = (rounds.bytes_up - 4 * rounds.parameters_up) / rounds.frames_up
    theirs = (fedavg.totals.bytes_up - 4 * fedavg.totals.parameters_up) / fedavg.totals.frames_up
    assert theirs < ours < 2.5 * theirs
    assert (rounds.frames_up, rounds.frames_down) == (12, 24)


def test_literal_upload_sends_every_model_again(world: Any) -> None:
    once, always = (world.run(world.algorithm("fedme", literal_upload=flag)) for flag in (False, True))
    assert [row.round for row in always.rounds] == [1, 2, 3, 4]
    assert once.totals.parameters_up == 2 * 3 * 4 * MLP
    assert always.totals.parameters_up == 3 * 3 * 4 * MLP
    assert always.totals.parameters_down == once.totals.parameters_down


def test_an_upload_that_is_not_the_first_tells_the_server_what_it_missed(world: Any) -> None:
    # Client 0's models after training are lost on their way up in round 1: its second frame. What it has
    # since, the server learns from its upload of round 2.
    algorithm = world.algorithm("fedme", literal_upload=True)
    watch = Watch(world, algorithm)

    def models(server: Any, state: Any, replies: Any, after: Any) -> Any:
        return {reply.client: reply.message.model for reply in replies}, after

    uploaded = world.recorded(algorithm, "merge_models", models)
    world.run(algorithm, rounds=2, lost=nth([2], sender=0), client_timeout_s=9.0)
    start = world.parts(algorithm).initial()("mlp").digest()
    (first, known), (second, known_later) = uploaded
    assert sorted(watch.pairs[0]) == [1, 2, 3]
    assert first[0].digest() == known.stored[0].model.digest() == start
    assert watch.states[0].stored[0].model.digest() == start
    assert second[0].digest() != start
    for client in range(4):
        assert known_later.stored[client].model.digest() == second[client].digest()


def test_whose_upload_is_lost_is_not_asked_to_learn(world: Any) -> None:
    watch = Watch(world, world.algorithm("fedme", literal_upload=True))
    world.run(watch.algorithm, rounds=2, lost=nth([1], sender=2), client_timeout_s=9.0)
    assert [sorted(sent) for sent in watch.sent] == [[0, 1, 3], [0, 1, 2, 3]]


# Tuning


def test_who_prefers_the_exchanged_model_takes_it_with_its_architecture(world: Any) -> None:
    watch = Watch(world, world.algorithm("fedme"))
    world.run(watch.algorithm, **MIXED)
    moved = 0
    for pairs, settled in zip(watch.pairs, watch.settled, strict=True):
        for client, pair in pairs.items():
            assert pair.chosen in (client, pair.owner)
            wanted = pair.personal_architecture if pair.chosen == client else pair.exchanged_architecture
            assert settled[client].architecture == wanted
            moved += wanted != pair.personal_architecture
    assert moved > 0
    final = {client: stored.model for client, stored in watch.states[-1].stored.items()}
    for client, state in watch.clients.items():
        assert state.digest() == final[client].digest()


class _Client(Client):
    """A client whose losses are as told, by architecture."""

    client = 0

    def __init__(self, own: float, other: float, num_val: int = 3) -> None:
        super().__init__(num_val)
        self.losses, self.asked = {"own": own, "other": other}, list[str]()

    async def fit(self, models: Any, **_: Any) -> Any:
        return SimpleNamespace(models=models)

    async def evaluate(self, model: Model, samples: Any) -> Any:
        self.asked.append(samples)
        return SimpleNamespace(loss=self.losses[model.architecture])


NAN = float("nan")


@pytest.mark.parametrize(
    ("own", "other", "chosen"),
    [(1.0, 2.0, 0), (1.0, 1.0, 0), (2.0, 1.0, 7), (NAN, NAN, 0), (NAN, 1.0, 7), (1.0, NAN, 0)],
)
@pytest.mark.parametrize("tune_on", ["validation", "train"])
def test_the_smaller_loss_is_chosen_and_of_equals_the_own(
    own: float, other: float, chosen: int, tune_on: str, world: Any
) -> None:
    client = _Client(own, other)
    algorithm = world.algorithm("fedme", tune_on=tune_on)
    message = SimpleNamespace(model=Model("other", {}), owner=7)
    state, reply = asyncio.run(algorithm.local_learn(client, Model("own", {}), message))
    assert (reply.chosen, reply.owner) == (chosen, 7)
    assert state.architecture == "own"
    assert set(client.asked) == {"val" if tune_on == "validation" else "train"}


def test_without_validation_samples_training_loss_decides(world: Any) -> None:
    client = _Client(2.0, 1.0, num_val=0)
    message = SimpleNamespace(model=Model("other", {}), owner=7)
    state = Model("own", {})
    _, reply = asyncio.run(world.algorithm("fedme").local_learn(client, state, message))
    assert reply.chosen == 7
    assert set(client.asked) == {"train"}
    assert {event for event, _ in client.warnings} == {"no validation samples"}


# Clusters


@pytest.mark.parametrize(
    ("params", "rounds", "expected"),
    [
        ({}, 20, {1: 1, 9: 1, 10: 2, 14: 2, 15: 3, 17: 3, 18: 4, 20: 4}),
        ({"raise_at": [150, 225, 275]}, 300, {149: 1, 150: 2, 225: 3, 274: 3, 275: 4, 300: 4}),
        ({"clusters": [2], "raise_at": []}, 5, {1: 2, 5: 2}),
        ({"clusters": [1, 3], "raise_at": [0.55]}, 100, {54: 1, 55: 3}),
        ({"mc": False}, 20, {1: 1, 20: 1}),
    ],
)
def test_schedule_of_clusters(
    params: dict[str, Any], rounds: int, expected: dict[int, int], world: Any
) -> None:
    algorithm = world.algorithm("fedme", **params)
    assert {t: algorithm.num_clusters(t, rounds) for t in expected} == expected


def test_exchanged_models_come_from_the_same_cluster(world: Any) -> None:
    # Two pairs of alike models: with two clusters each client gets its twin's.
    outputs = {0: [[1.0, 0.0]], 1: [[0.0, 1.0]], 2: [[0.9, 0.1]], 3: [[0.1, 0.9]]}
    stored = {k: Stored(Model("m", {}), np.array(v, np.float32)) for k, v in outputs.items()}

    async def call(function: Any, *arguments: Any, flops: float) -> Any:
        assert flops > 0
        return function(*arguments)

    async def predict_each(models: Any, samples: Any) -> Any:
        assert not models
        return []

    server = SimpleNamespace(
        round=1,
        num_rounds=3,
        num_public=1,
        key=Key.root(1),
        call=call,
        predict_each=predict_each,
        public=lambda positions: positions,
    )
    algorithm = world.algorithm("fedme", clusters=[2], raise_at=[])
    _, messages = asyncio.run(algorithm.instruct_learn(server, ServerState(stored), (0, 1, 2, 3)))
    assert {client: message.owner for client, message in messages.items()} == {0: 2, 1: 3, 2: 0, 3: 1}


def test_clustering_takes_the_servers_time(world: Any) -> None:
    one = world.run(world.algorithm("fedme", mt=False, mc=False), rounds=1)
    two = world.run(world.algorithm("fedme", mt=False, clusters=[2], raise_at=[]), rounds=1)
    assert two.simulated_s > one.simulated_s
    assert two.totals == one.totals


def test_means_take_the_servers_time(world: Any) -> None:
    parts = world.parts(world.algorithm("fedme", mc=False), rounds=1)
    parts.fleet.server = parts.fleet.server._replace(speed_flops=1e4)
    assert run(parts).simulated_s > 2 * 2 * 4 * MLP / 1e4


# Absence and loss


def test_who_is_absent_keeps_its_model(world: Any) -> None:
    watch = Watch(world, world.algorithm("fedme"))
    world.run(watch.algorithm, rounds=1, clients_per_round=2)
    (pairs,), (state,) = watch.pairs, watch.states
    assert len(pairs) == 2
    assert {pair.owner for pair in pairs.values()} == set(pairs)  # each the other's
    start = world.parts(watch.algorithm).initial()("mlp")
    assert sorted(state.stored) == [0, 1, 2, 3]
    for client in state.stored.keys() - pairs.keys():
        assert state.stored[client].model.digest() == start.digest()


def test_copies_of_a_silent_clients_model_count_without_its_own(world: Any) -> None:
    # Client 0's replies are lost: whoever has a copy of its model and prefers it gets the mean of copies.
    lost = nth(range(2, 99), sender=0)  # the opening upload arrives
    watch = Watch(world, world.algorithm("fedme"))
    result = world.run(watch.algorithm, lost=lost, client_timeout_s=9.0)
    assert all(sorted(pairs) == [1, 2, 3] for pairs in watch.pairs)
    assert any(pair.owner == 0 for pairs in watch.pairs for pair in pairs.values())
    start = world.parts(watch.algorithm).initial()("mlp")
    assert watch.states[-1].stored[0].model.digest() == start.digest()
    assert result.by_client["dropped"].tolist() == [3, 0, 0, 0]
    assert watch.clients[0].digest() != start.digest()  # it trains all the same


def test_whoever_does_not_get_what_it_chose_goes_on_with_its_own(world: Any) -> None:
    # Client 1's frames down are lost in every settle: those are the frames to it after its own upload.
    lost = nth(range(2, 99, 2), receiver=1)
    watch = Watch(world, world.algorithm("fedme"))
    result = world.run(watch.algorithm, lost=lost, client_timeout_s=9.0, **MIXED)
    assert result.by_client["dropped"].tolist() == [0, 3, 0, 0]
    assert result.rejections.total() == 0
    assert len(watch.states) == 3
    for pairs, state in zip(watch.pairs, watch.states, strict=True):
        assert state.stored[1].model.digest() == pairs[1].personal.digest()
        assert pairs[1].personal_architecture == "mlp"
    assert watch.clients[1].digest() == watch.pairs[-1][1].personal.digest()


def test_who_could_not_enrol_takes_part_from_its_first_reply_on(world: Any) -> None:
    watch = Watch(world, world.algorithm("fedme"))
    result = world.run(watch.algorithm, lost=nth([1], sender=2), client_timeout_s=9.0)
    assert [row.merged for row in result.rounds] == [3, 8, 8, 8, 4]
    assert all(message.owner != 2 for message in watch.sent[0].values())
    assert sorted(watch.states[0].stored) == [0, 1, 2, 3]


def test_replies_may_be_carried_into_a_later_round(world: Any) -> None:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "60 ms", "late": "carry"}))
    result = world.run(world.algorithm("fedme"), pacing=pacing, rounds=6)
    assert any(row.merged > row.asked for row in result.rounds)
    assert result.rejections.total() == 0


def test_a_late_confirmation_is_not_taken_for_this_rounds_offer(world: Any) -> None:
    stored = {k: Stored(Model("kept", {})) for k in (0, 1)}
    state = ServerState(stored, {1: Model("offered", {})})
    replies = [Reply(k, 0, "settle", 0, staleness, 1.0, None) for k, staleness in ((0, 2), (1, 0))]
    after = asyncio.run(world.algorithm("fedme").merge_settle(None, state, replies))
    assert [after.stored[k].model.architecture for k in (0, 1)] == ["kept", "offered"]
    assert not after.offers


# The opening and the end


def test_clients_begin_with_the_candidate_that_serves_them_best(world: Any) -> None:
    watch = Watch(world, world.algorithm("fedme", candidates=["linear", "mlp"], candidate_epochs=5))
    result = world.run(watch.algorithm, rounds=1)
    start = world.parts(watch.algorithm).initial()
    assert {p.personal_architecture for p in watch.pairs[0].values()} <= {"linear", "mlp"}
    assert "linear" in {p.personal_architecture for p in watch.pairs[0].values()}
    assert result.rounds[0].ended_at_s > world.run(world.algorithm("fedme"), rounds=1).rounds[0].ended_at_s
    for message in watch.sent[0].values():  # its architecture, which begins anew
        assert message.model.digest() == start(message.architecture).digest()
    assert result.rounds[0].traffic.parameters_up == 0


def test_clients_may_begin_with_the_candidate_as_it_was_trained(world: Any) -> None:
    settings = {"candidates": ["linear", "mlp"], "start_trained": True}
    watch = Watch(world, world.algorithm("fedme", **settings))
    result = world.run(watch.algorithm, rounds=1)
    start = world.parts(watch.algorithm).initial()
    models = [message.model for message in watch.sent[0].values()]
    assert all(model.digest() != start(model.architecture).digest() for model in models)
    assert 4 * LINEAR <= result.rounds[0].traffic.parameters_up <= 4 * MLP


def test_candidates_are_found_where_models_travel_each_round(world: Any) -> None:
    algorithm = world.algorithm("fedme", candidates=["linear"], literal_upload=True)
    result = world.run(algorithm, rounds=1)
    assert [row.round for row in result.rounds] == [0, 1, 2]
    assert result.rounds[0].traffic.frames_up == 0
    assert result.totals.parameters_up == 3 * 4 * LINEAR


def test_candidates_are_architectures_of_the_run(world: Any) -> None:
    with pytest.raises(UserError, match="no model of the run is labelled 'cnn'"):
        world.run(world.algorithm("fedme", candidates=["cnn"]))


def test_fine_tuning_works_on_a_copy(world: Any) -> None:
    plain = world.run(world.algorithm("fedme", finetune_epochs=0))
    tuned = world.run(world.algorithm("fedme", finetune_epochs=3))
    assert tuned.rounds[-1].round == 4
    assert tuned.rounds[-1].traffic.frames_down == tuned.rounds[-1].traffic.frames_up == 0
    assert tuned.rounds[-1].ended_at_s > tuned.rounds[-1].began_at_s
    assert tuned.final.others["untuned"] == pytest.approx(plain.final.mean)
    assert tuned.final.mean != plain.final.mean


class _Tuning(Client):
    """A client whose models are called after the passes that they have had, best after the second."""

    def note(self, event: str, **values: Any) -> None:
        self.noted = (event, values)

    async def fit(self, model: Model, *, epochs: int, name: str, **kept: Any) -> Any:
        return SimpleNamespace(model=Model(str(int(model.architecture) + epochs), {}))

    async def evaluate(self, model: Model, samples: Any) -> Any:
        assert samples == "val"
        return SimpleNamespace(loss=abs(int(model.architecture) - 2))


def test_candidates_are_trained_for_as_many_passes_as_told(world: Any) -> None:
    client: Any = _Tuning()
    client.initial_model = lambda label, variant: Model(str(10 * int(label)), {})
    client.client = 0
    for passes, best in ((1, "1"), (4, "4")):
        algorithm = world.algorithm(
            "fedme", candidates=["0", "1"], candidate_epochs=passes, start_trained=True
        )
        state, reply = asyncio.run(algorithm.local_enrol(client, Model("0", {}), None))
        assert state.architecture == reply.architecture == best
        assert client.noted == ("architecture chosen", {"architecture": best})


# The rest


def _pair(owner: int, chosen: int, personal: str = "a", exchanged: str = "a") -> ModelPair:
    def model(label: str) -> Model:
        return Model(label, {"w": np.zeros(2, np.float32)})

    return ModelPair.of(model(personal), None if owner == NOBODY else model(exchanged), owner, chosen)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (_pair(1, 0), None),
        (_pair(1, 1), None),
        (_pair(NOBODY, 0), None),
        (_pair(1, 2), "choice 2"),
        (_pair(NOBODY, NOBODY), "choice -1"),
        (_pair(0, 0), "client 0, architecture 'a', which it was not given"),
        (_pair(2, 0), "client 2, architecture 'a', which it was not given"),
        (_pair(9, 0), "client 9, architecture 'a', which it was not given"),
        (_pair(1, 0, exchanged="c"), "client 1, architecture 'c', which it was not given"),
        (_pair(1, 0, personal="z"), "'z', which the run does not have"),
        (_pair(1, 0, exchanged="b"), "w: float32"),
        (ModelUpdate.of(Model("b", {}), num_samples=1), "other names"),
        (Enrolment("b"), None),
        (Enrolment("z"), "'z', which the run does not have"),
    ],
)
def test_replies_that_cannot_be_are_rejected(message: Any, reason: str | None, world: Any) -> None:
    sizes = {"a": 2, "b": 3, "c": 2}
    made = {label: Model(label, {"w": np.zeros(size, np.float32)}) for label, size in sizes.items()}
    server = SimpleNamespace(num_clients=4, initial_model=made.__getitem__)
    reply = Reply(0, 0, "learn", 0, 0, 1.0, message)
    state = ServerState(given={0: (1, "a"), 3: (2, "a")})
    found = world.algorithm("fedme").vet(server, state, reply)
    assert found is reason if reason is None else reason in found


def test_without_tuning_a_client_chooses_its_own(world: Any) -> None:
    server = SimpleNamespace(num_clients=4, initial_model=lambda label: _pair(1, 0).personal)
    for chosen, reason in ((0, None), (1, "choice 1")):
        reply = Reply(0, 0, "learn", 0, 0, 1.0, _pair(1, chosen))
        found = world.algorithm("fedme", mt=False).vet(server, ServerState(given={0: (1, "a")}), reply)
        assert found is reason if reason is None else reason in found


def test_the_server_remembers_what_each_was_given_until_it_is_asked_again(world: Any) -> None:
    stored = {k: Stored(Model("m", {})) for k in (1, 2)}
    before = ServerState(stored, given={0: (9, "m"), 1: (9, "m"), 3: (2, "m")})
    server = SimpleNamespace(round=1, num_rounds=9, key=Key.root(1))
    algorithm = world.algorithm("fedme")
    state, _ = asyncio.run(algorithm.instruct_learn(server, before, (0, 1)))
    assert state.given == {0: state.given[0], 1: (2, "m"), 3: (2, "m")}
    assert state.given[0] in ((1, "m"), (2, "m"))
    alone = ServerState({1: stored[1]}, given={1: (9, "m")})
    state, messages = asyncio.run(algorithm.instruct_learn(server, alone, (1,)))
    assert (messages, state.given) == ({1: None}, {1: None})


def test_shares_of_all_rounds_need_their_number(world: Any) -> None:
    endless = Setting(Task((3,), 2), {}, None, 40, False, num_rounds=MAX_ROUNDS)  # type: ignore[arg-type]
    (fault,) = world.algorithm("fedme").misfits(endless)
    assert (fault.path, "whose number nobody knows" in fault.problem) == ("algorithm.params.raise_at", True)
    in_rounds = world.algorithm("fedme", clusters=(1, 2), raise_at=(5.0,))
    assert list(in_rounds.misfits(endless)) == []


def _model(value: float, architecture: str = "a") -> Model:
    return Model(architecture, {"w": np.full(2, value, np.float32)})


def _value(model: Model) -> float:
    return float(model.params["w"][0])


# The mean of copies


def test_running_example_of_the_paper() -> None:
    # Section 4.3, clients 1 to 5; w_p of client i is 10 i, its exchanged model as trained 100 i.
    own = [(i, _model(10.0 * i)) for i in range(1, 6)]

    # First round: clients 1 to 5 have the models of 3, 4, 1, 5, 2.
    exchanged = dict(zip(range(1, 6), (3, 4, 1, 5, 2), strict=True))
    means = means_of_copies([*own, *((exchanged[i], _model(100.0 * i)) for i in range(1, 6))])
    after = {owner: _value(mean) for (owner, _), mean in means.items()}
    assert after[1] == (10 + 300) / 2  # "aggregates w_p1 and w_ex3"
    assert after == {1: 155.0, 2: 260.0, 3: 65.0, 4: 120.0, 5: 225.0}

    # Second round: the models of 3, 4, 1, 2, 4; the model of client 4 goes to two of them.
    exchanged = dict(zip(range(1, 6), (3, 4, 1, 2, 4), strict=True))
    means = means_of_copies([*own, *((exchanged[i], _model(100.0 * i)) for i in range(1, 6))])
    after = {owner: _value(mean) for (owner, _), mean in means.items()}
    assert after == {1: 155.0, 2: 210.0, 3: 65.0, 4: 246.66667175292969, 5: 50.0}
    assert after[4] == pytest.approx((40 + 200 + 500) / 3)


def test_architectures_are_kept_apart() -> None:
    # A client never got the architecture that it had chosen, and others have copies of that one.
    means = means_of_copies(
        [(0, _model(1.0)), (0, _model(5.0, "b")), (0, _model(3.0)), (1, _model(7.0, "b"))]
    )
    assert {line: _value(mean) for line, mean in means.items()} == {
        (0, "a"): 2.0,
        (0, "b"): 5.0,
        (1, "b"): 7.0,
    }


# The draws

KEY = Key.root(5)


def _counts(client: int, groups: dict[int, int], stored: list[int]) -> Counter[int | None]:
    return Counter(draw(KEY.child(number), client, groups, stored) for number in range(300))


def test_models_are_exchanged_within_a_group_and_evenly() -> None:
    counts = _counts(1, {0: 0, 1: 0, 2: 1, 3: 0}, [0, 1, 2, 3, 4])
    assert set(counts) == {0, 3}
    assert min(counts.values()) > 100


@pytest.mark.parametrize(
    ("client", "groups", "stored", "owners"),
    [
        (2, {0: 0, 1: 0, 2: 1}, [0, 1, 2, 3], {0, 1}),  # alone in its group: any of the cohort
        (2, {2: 0}, [0, 2, 3], {0, 3}),  # alone in the cohort: any that is stored
        (2, {0: 0, 1: 1}, [0, 1, 3], {0, 1}),  # that has sent nothing yet: any of the cohort
        (0, {0: 0}, [0], {None}),
        (0, {}, [], {None}),
    ],
)
def test_a_client_without_a_peer_gets_any_other_model(
    client: int, groups: dict[int, int], stored: list[int], owners: set[int | None]
) -> None:
    assert set(_counts(client, groups, stored)) == owners


def test_draws_of_clients_are_independent() -> None:
    # No permutation: sometimes a model goes to two clients (D-004-05).
    groups = dict.fromkeys(range(3), 0)
    rounds = [[draw(KEY.child(n), client, groups, [0, 1, 2]) for client in range(3)] for n in range(60)]
    assert any(len(set(owners)) == 2 for owners in rounds)
    assert any(len(set(owners)) == 3 for owners in rounds)
    assert all(owner != client for owners in rounds for client, owner in enumerate(owners))


# The outputs


def test_only_new_models_are_asked_and_each_once() -> None:
    asked: list[str] = []

    async def predict_each(models: Any, samples: Any) -> list[Any]:
        asked.extend(model.architecture for model in models)
        return [np.zeros((3, 2), np.float32) for _ in models]

    server: Any = SimpleNamespace(num_public=3, public=lambda positions: positions, predict_each=predict_each)
    known, new = np.ones((3, 2), np.float32), _model(1.0, "new")
    stored = {0: Stored(_model(0.0, "old"), known), 1: Stored(new), 2: Stored(new), 3: Stored(_model(2.0))}
    after, outputs = asyncio.run(outputs_of(server, stored, [0, 1, 2]))
    assert asked == ["new"]
    assert list(outputs) == [0, 1, 2]
    assert [one.tolist() for one in outputs.values()] == [known.tolist()] + [[[0.5, 0.5]] * 3] * 2
    assert after[1].outputs is not None
    assert after[3].outputs is None
    assert stored[1].outputs is None
    asyncio.run(outputs_of(server, after, [0, 1, 2]))
    assert asked == ["new"]


def test_models_with_outputs_that_are_no_numbers_are_no_longer_stored() -> None:
    async def predict_each(models: Any, samples: Any) -> list[Any]:
        return [np.full((3, 2), [0.0, _value(model)], np.float32) for model in models]

    warned: list[Any] = []
    server: Any = SimpleNamespace(
        num_public=3,
        public=lambda positions: positions,
        predict_each=predict_each,
        warn=lambda event, **values: warned.append((event, values["client"])),
    )
    stored = {k: Stored(_model(value)) for k, value in enumerate((0.0, np.inf, np.nan, 0.0))}
    after, outputs = asyncio.run(outputs_of(server, stored, [0, 1, 2]))
    assert (list(outputs), sorted(after)) == ([0], [0, 3])
    assert warned == [("model left out", 1), ("model left out", 2)]
    assert sorted(stored) == [0, 1, 2, 3]


# The messages


def test_messages_count_trainable_scalars_alone() -> None:
    buffered = Model("a", {"w": np.zeros(5, np.float32)}, {"mean": np.zeros(3, np.float32)})
    assert num_parameters(ExchangedModel("a", buffered.params, buffered.buffers, 2)) == 5
    both = ModelPair.of(buffered, _model(1.0, "b"), 3, 3)
    assert num_parameters(both) == 7
    assert both.personal.digest() == buffered.digest()
    assert both.exchanged is not None
    assert both.exchanged.digest() == _model(1.0, "b").digest()
    alone = ModelPair.of(buffered, None, NOBODY, 2)
    assert num_parameters(alone) == 5
    assert alone.exchanged is None


class _Live:
    """A model whose logits are its one parameter, ``[b, N]``."""

    def __init__(self, logits: list[list[float]]) -> None:
        self.params = {"logits": torch.tensor(logits, requires_grad=True)}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.params["logits"]


def _live_pair(own: list[list[float]], other: list[list[float]]) -> dict[str, Any]:
    return {PERSONAL: _Live(own), EXCHANGED: _Live(other)}


def _batches(labels: list[int]) -> dict[str, Batch]:
    return {"train": Batch(torch.zeros(len(labels), 1), torch.tensor(labels))}


def _values(losses: Mapping[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(loss.detach()) for name, loss in losses.items()}


def test_losses_by_hand() -> None:
    # Own (1/2, 1/2), exchanged (3/4, 1/4); the label is the first class.
    models = _live_pair([[0.0, 0.0]], [[log(3.0), 0.0]])
    losses = _values(MutualLearning()(models, _batches([0]), {}))
    assert losses[PERSONAL] == pytest.approx(log(2) + 0.75 * log(1.5) + 0.25 * log(0.5), abs=1e-6)
    assert losses[EXCHANGED] == pytest.approx(log(4 / 3) + 0.5 * log(2 / 3) + 0.5 * log(2), abs=1e-6)
    alone = _values(MutualLearning(imitate=False)(models, _batches([0]), {}))
    assert alone[PERSONAL] == pytest.approx(log(2), abs=1e-6)
    assert alone[EXCHANGED] == pytest.approx(log(4 / 3), abs=1e-6)


def test_the_others_predictions_count_as_given() -> None:
    models = _live_pair([[0.5, -1.0]], [[-0.3, 0.2]])
    losses = MutualLearning()(models, _batches([1]), {})
    for name, other in ((PERSONAL, EXCHANGED), (EXCHANGED, PERSONAL)):
        logits = models[other].params["logits"]
        (gradient,) = torch.autograd.grad(losses[name], logits, retain_graph=True, allow_unused=True)
        assert gradient is None


def test_gradients_are_differences_of_probabilities() -> None:
    # d(CE + KL(q || p))/dz = (p - y) + (p - q).
    models = _live_pair([[0.5, -1.0, 0.0]], [[-0.3, 0.2, 1.0]])
    losses = MutualLearning()(models, _batches([1]), {})
    p, q = (torch.softmax(models[name].params["logits"].detach(), 1) for name in (PERSONAL, EXCHANGED))
    y = torch.tensor([[0.0, 1.0, 0.0]])
    for name, expected in ((PERSONAL, 2 * p - y - q), (EXCHANGED, 2 * q - y - p)):
        (gradient,) = torch.autograd.grad(losses[name], models[name].params["logits"], retain_graph=True)
        assert torch.allclose(gradient, expected, atol=1e-6)


def test_both_gradients_are_taken_before_either_model_moves() -> None:
    starts = {PERSONAL: [[0.5, -1.0]], EXCHANGED: [[-0.3, 0.2]]}
    ends = []
    for order in ((PERSONAL, EXCHANGED), (EXCHANGED, PERSONAL)):
        models: dict[str, Any] = {name: _Live(starts[name]) for name in order}
        optimiser = Sgd(lr=0.5)
        states = {name: optimiser.start(list(models[name].params.values())) for name in order}
        work = Work(models, order, {}, dict.fromkeys(order, optimiser), states, torch.Generator())
        Descent(loss=MutualLearning())(work, _batches([0]))
        ends.append({name: models[name].params["logits"].tolist() for name in order})
    assert ends[0] == ends[1]
    assert ends[0][PERSONAL] != starts[PERSONAL]
    assert ends[0][EXCHANGED] != starts[EXCHANGED]
