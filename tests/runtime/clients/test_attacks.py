"""Attacks: who attacks, and what attackers send."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsim.config import Config
from fedsim.data import SPLITS, LoadContext, Spreading, federate
from fedsim.data.digits import PLUGIN as DIGITS
from fedsim.data.partitions.iid import PLUGIN as IID
from fedsim.network.fault_settings import FaultConfig
from fedsim.network.faults import RunFault
from fedsim.params import PendingTree, Tree, form_of
from fedsim.rng import Key
from fedsim.runtime.clients.attacks import Attacks, attacked, with_flipped_labels
from fedsim.wire import LogitsUp, Message, ModelBroadcast, ModelUpdate, counted, message

START = {"w": np.array([1.0, 2.0], np.float32), "b": np.array(0.5, np.float32)}
TRAINED = {"w": np.array([2.0, 0.0], np.float32), "b": np.array(0.5, np.float32)}
BUFFERS = {"mean": np.array([7.0])}
RECEIVED = ModelBroadcast("net", START, {})
UPDATE = ModelUpdate("net", TRAINED, BUFFERS, 12)


def attack(kind: str, members: Any = None, key: str = "a", **settings: Any) -> RunFault:
    config = FaultConfig.model_validate({"kind": kind, "share": 0.5, **settings})
    return RunFault(config, Key.root(4).child(key), members)


def sent(one: RunFault, *, changes: tuple[str, ...] = (), received: Any = RECEIVED) -> Any:
    return attacked(one, UPDATE, received, changes, (3, 5))


def lists(reply: Any) -> dict[str, Any]:
    return {name: array.tolist() for name, array in reply.params.items()}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (attack("sign_flip"), {"w": [0.0, 4.0], "b": 0.5}),
        (attack("scale", factor=10), {"w": [11.0, -18.0], "b": 0.5}),
        (attack("constant", value=3), {"w": [3.0, 3.0], "b": 3.0}),
        (attack("label_flip"), {"w": [2.0, 0.0], "b": 0.5}),
    ],
)
def test_what_attackers_send_for_a_model(one: RunFault, expected: Any) -> None:
    reply = sent(one)
    assert lists(reply) == expected
    assert (reply.buffers, reply.num_samples, reply.architecture) == (BUFFERS, 12, "net")
    assert {array.dtype for array in reply.params.values()} == {np.dtype(np.float32)}


def test_changes_are_taken_from_zero() -> None:
    expected = {"w": [-2.0, 0.0], "b": -0.5}
    assert lists(sent(attack("sign_flip"), changes=("params",))) == expected
    assert lists(sent(attack("sign_flip"), received=None)) == expected
    other = ModelBroadcast("other", {"w": START["w"]}, {})
    assert lists(sent(attack("sign_flip"), received=other)) == expected


def test_noise_is_drawn_for_each_client_and_dispatch() -> None:
    noise = attack("noise", deviation=0.5)
    rows = np.array(
        [
            attacked(noise, UPDATE, RECEIVED, (), (client, dispatch)).params["w"]  # type: ignore[union-attr]
            for client in range(20)
            for dispatch in range(20)
        ]
    )
    assert len(np.unique(rows)) == rows.size
    np.testing.assert_allclose(rows.mean(axis=0), [2.0, 0.0], atol=4 * 0.5 / 20)
    np.testing.assert_allclose(rows.std(axis=0), 0.5, rtol=0.2)
    assert lists(sent(noise)) == lists(sent(noise))


def test_a_pending_model_stays_pending() -> None:
    computed = []

    def compute() -> Any:
        computed.append(1)
        return TRAINED

    update = ModelUpdate("net", PendingTree(form_of(TRAINED), compute), {}, 12)
    reply: Any = attacked(attack("sign_flip"), update, RECEIVED, (), (0, 0))
    assert not computed
    assert lists(reply) == {"w": [0.0, 4.0], "b": 0.5}
    assert computed == [1]


@message("scores")
class Scores(Message):
    scores: NDArray[np.float64] = counted()


@message("several")
class Several(Message):
    trees: Mapping[str, Tree] = counted()


def test_attacked_probabilities_are_probabilities() -> None:
    rows = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], np.float32)
    sent = LogitsUp(rows, "probs", 1.0, 0)
    reply: Any = attacked(attack("sign_flip"), sent, None, (), (0, 0))
    # In proportion to 1 / p: 2 to 4 to 4, and as good as 0 to 1 to 1.
    np.testing.assert_allclose(reply.values, [[0.2, 0.4, 0.4], [0.0, 0.5, 0.5]], atol=1e-6)
    reply = attacked(attack("constant", value=7), sent, None, (), (0, 0))
    np.testing.assert_allclose(reply.values, np.full((2, 3), 1 / 3), rtol=1e-6)
    reply = attacked(attack("sign_flip"), LogitsUp(rows, "logits", 1.0, 0), None, (), (0, 0))
    assert reply.values.tolist() == (-rows).tolist()


def test_what_attackers_send_is_read_only() -> None:
    reply = sent(attack("sign_flip"))
    assert not any(array.flags.writeable for array in reply.params.values())


def test_predictions_and_several_trees_are_attacked_too() -> None:
    scores = Scores(np.array([[1.0, -2.0]]))
    reply: Any = attacked(attack("sign_flip"), scores, None, (), (0, 0))
    assert reply.scores.tolist() == [[-1.0, 2.0]]
    reply = attacked(attack("sign_flip"), Several({"first": START, "second": TRAINED}), None, (), (0, 0))
    assert {name: tree["w"].tolist() for name, tree in reply.trees.items()} == {
        "first": [-1.0, -2.0],
        "second": [-2.0, 0.0],
    }
    assert attacked(attack("sign_flip"), None, None, (), (0, 0)) is None


def test_a_share_of_the_members_attack_and_each_makes_one_attack() -> None:
    members = np.arange(20) < 10
    attacks = Attacks(
        [attack("sign_flip", share=0.3), attack("noise", members, "b", deviation=1, share=1.0)], 20
    )
    kinds = attacks.of_clients()
    assert attacks.counts() == [6, np.count_nonzero(kinds[:10] != "sign_flip")]
    assert [kind is None for kind in kinds[10:]].count(False) == np.count_nonzero(kinds[10:] == "sign_flip")
    assert [attacks.of(client) is None for client in range(20)] == [kind is None for kind in kinds]
    assert attacks.send_other_replies(np.arange(20)).tolist() == [kind is not None for kind in kinds]
    assert attacks.lacking == [0, 10 - attacks.counts()[1]]


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.04, 0), (0.05, 1), (0.25, 3), (1.0, 10)])
def test_shares_are_rounded_to_the_nearest_number(share: float, count: int) -> None:
    attacks = Attacks([attack("label_flip", share=share)], 10)
    assert len(attacks.flips_labels()) == count
    assert not attacks.send_other_replies(np.arange(10)).any()


def test_labels_are_flipped_where_they_are_trained_on() -> None:
    dataset = DIGITS(DIGITS.Config()).load(LoadContext(None, 4, Key.root(1)))
    spreading = Spreading(num_clients=4, shares=(0.6, 0.2, 0.2), global_test_share=0.1, limit=200)
    data = federate(dataset, IID(Config()), spreading, Key.root(1))
    clients = np.array([1, 3])
    flipped = with_flipped_labels(data, clients)
    for client in range(4):
        for split in SPLITS:
            positions = data.indices(client, split)
            before, after = data.y[positions], flipped.y[positions]
            is_flipped = split == "train" and client in clients
            np.testing.assert_array_equal(after, 9 - before if is_flipped else before)
    np.testing.assert_array_equal(flipped.y[data.global_test], data.y[data.global_test])
