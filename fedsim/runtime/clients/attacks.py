"""Attacks: clients that send something else than their work, or learn from wrong labels.

Which clients attack is drawn once, and each makes one attack in every round. A *change* is what a client
sends minus what it received under the same name, such as the parameters of the global model. Where it
received nothing of that form, or several models, or sends changes itself, it is what it sends. Of
probabilities attackers change the logarithms, and send the softmax of that. An attack concerns what counts as
parameters communicated, and neither running statistics nor what the client keeps.

- *sign_flip*: it sends the opposite change.
- *scale*: it sends ``factor`` times the change.
- *noise*: it adds normal noise with the standard deviation ``deviation`` to each value.
- *constant*: it sends ``value`` in place of each value.
- *label_flip*: it trains honestly, on labels ``N - 1 - y`` in place of y, of N classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import Any

import numpy as np

from fedsim.data import FederatedData
from fedsim.network.faults import RunFault
from fedsim.params import Array, PendingTree, Tree, form_of, forms_of, freeze
from fedsim.rng import Key
from fedsim.wire import Message
from fedsim.wire.coded_messages import of_probabilities

LEAST_PROBABILITY = 1e-12
"""What probabilities are before their logarithm is taken, at least."""


class Attacks:
    """The attackers of a run.

    Args:
        faults: The attacks. A client makes one at most: each draws from those that make none before it.
        num_clients: K.

    Attributes:
        lacking: How many clients each attack lacks, since all others attack before it.
    """

    def __init__(self, faults: Sequence[RunFault], num_clients: int) -> None:
        self._faults = faults
        self._of_clients = np.full(num_clients, -1, np.int16)
        self.lacking: list[int] = []
        for number, one in enumerate(faults):
            members = np.ones(num_clients, bool) if one.members is None else one.members
            free = np.flatnonzero(members & (self._of_clients < 0))
            wanted = floor((one.config.share or 0) * np.count_nonzero(members) + 0.5)
            self.lacking.append(max(0, wanted - len(free)))
            drawn = one.key.numpy().choice(free, min(wanted, len(free)), replace=False)
            self._of_clients[drawn] = number

    def of(self, client: int) -> RunFault | None:
        """Return the attack that a client makes; None if it is honest."""
        number = int(self._of_clients[client])
        return self._faults[number] if number >= 0 else None

    def of_clients(self) -> Array:
        """Return the kind of each client's attack, texts ``[K]``; None for honest ones."""
        kinds = np.array([*(one.config.kind for one in self._faults), None], object)
        return kinds[self._of_clients]

    def counts(self) -> list[int]:
        """Return how many clients make each attack."""
        return [int(np.count_nonzero(self._of_clients == number)) for number in range(len(self._faults))]

    def send_other_replies(self, clients: Array) -> Array:
        """Return which of some clients send something else than their work, ``[clients]``."""
        are_changed = np.array([*(one.config.kind != "label_flip" for one in self._faults), False])
        changed: Array = are_changed[self._of_clients[clients]]
        return changed

    def flips_labels(self) -> Array:
        """Return the clients that train on wrong labels, ascending."""
        return np.flatnonzero(self.of_clients() == "label_flip")


def with_flipped_labels(data: FederatedData, clients: Array) -> FederatedData:
    """Return data in which some clients' training samples have labels ``N - 1 - y``."""
    if not data.has_samples:
        return data
    labels, positions = data.y.copy(), data.indices_of(clients, "train")
    labels[positions] = data.task.num_outputs - 1 - labels[positions]
    return replace(data, y=labels)


def attacked(
    attack: RunFault, reply: Message | None, received: Message | None, changes: Collection[str], dispatch: Any
) -> Message | None:
    """Return what an attacker sends in place of a reply; the arrays are computed when the reply's are.

    Args:
        attack: The attack.
        reply: Of an honest client; None where nothing is sent.
        received: What it has received, if anything.
        changes: Fields of the reply that are changes of models.
        dispatch: Numbers that name the draws: of the client, and of the dispatch.
    """
    if reply is None or attack.config.kind == "label_flip":
        return reply
    there, fields = () if received is None else received.PLAN.counted, dict[str, Any]()
    probabilities = of_probabilities(reply)
    for name in reply.PLAN.counted:
        sent, key = getattr(reply, name), attack.key.child(name, *dispatch)
        if name in probabilities:
            scores = np.log(np.maximum(sent.astype(np.float64), LEAST_PROBABILITY))
            scores = _attacked(attack, scores, None, key)
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            fields[name] = (shares / shares.sum(axis=-1, keepdims=True)).astype(sent.dtype)
        else:
            start = getattr(received, name) if name in there and name not in changes else None
            fields[name] = _attacked(attack, sent, start, key)
    return replace(reply, **fields)  # type: ignore[type-var]


def _attacked(attack: RunFault, sent: Any, received: Any, key: Key) -> Any:
    """Return an array, a tree, or a mapping of trees as an attacker sends it."""
    if isinstance(sent, np.ndarray):
        alike = isinstance(received, np.ndarray) and received.shape == sent.shape
        return _changed(attack, {"": sent}, {"": received} if alike else None, key)[""]
    if sent is None or not _is_tree(sent):
        return sent and {name: _attacked(attack, tree, None, key.child(name)) for name, tree in sent.items()}
    form = form_of(sent)
    start = received if _is_tree(received) and form_of(received).is_like(form) else None
    return PendingTree(form, lambda: _changed(attack, sent, start, key))


def _is_tree(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(
        isinstance(one, Mapping) for one in forms_of(value).values()
    )


def _changed(attack: RunFault, sent: Tree, start: Tree | None, key: Key) -> Tree:
    """Return a tree as an attacker sends it, given the one from which its client began, if any."""
    config, draws, changed = attack.config, key.numpy(), dict[str, Array]()
    factor = -1.0 if config.kind == "sign_flip" else config.factor
    for name, array in sent.items():
        if array.dtype.kind != "f":
            changed[name] = array
            continue
        values: Any = array.astype(np.float64)
        if config.kind == "noise":
            values += draws.normal(scale=config.deviation or 0, size=array.shape)
        elif config.kind == "constant":
            values = np.full(array.shape, config.value)
        else:
            from_ = 0.0 if start is None else start[name].astype(np.float64)
            values = from_ + factor * (values - from_)
        changed[name] = np.asarray(values).astype(array.dtype)
    return freeze(changed)
