"""A hook that has run for one client and does the same for all like clients, in this round and later ones.

A client without state often trains what it has received and sends that, as in FedAvg. Then the hooks of
clients that hold equally many samples do the same, but for the models that they receive, the samples, the
seeds and the time that it takes. So one hook runs, and what it asked for and sent is kept as a
:class:`SharedHook`, which gives the jobs and replies of all. This holds only if the hook has neither asked
who its client is nor looked at a result (:mod:`fedsim.runtime.clients.leading_hook`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from fedsim.algorithms.contexts import place_of
from fedsim.bus.memory import OnLink
from fedsim.engine.cost import Effort, loads_of
from fedsim.engine.engine import Engine
from fedsim.engine.jobs import Extra, Fit
from fedsim.engine.like_fits import LikeFits
from fedsim.engine.pending_fit import Part
from fedsim.engine.shared_fit import LikeResults, start_like
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import Device
from fedsim.params import Array, Form, Model, PendingTree, RowTree, Tree
from fedsim.rng import Key
from fedsim.walk import is_leaf, parts
from fedsim.wire import Message

Make = Callable[[Sequence[Tree]], Any]
"""Makes a value with trees in it."""

_RECORDS = (Fit, Model, Extra)
"""Records in which trees may be replaced, beside messages."""


class SharedFit(NamedTuple):
    """A fit for which the hook asks.

    Attributes:
        make: Given the trees of the message, makes the fit of one of the clients.
        seed_name: The name from which the seed is derived.
        flops: Operations of the fit.
    """

    make: Make
    seed_name: str
    flops: float


class SentTree(NamedTuple):
    """A trained tree in a reply.

    Attributes:
        fit: The number of the fit.
        name: The name of the model.
        part: Which part of the model it is.
        form: Its form.
    """

    fit: int
    name: str
    part: Part
    form: Form


@dataclass(frozen=True, slots=True, eq=False)
class SharedHook:
    """What a hook does for any of several like clients.

    Attributes:
        requests: What each job of each request asks of the device.
        fits: The jobs, one after the other.
        sent: The trained trees in the reply.
        make_reply: Given these trees of a client, and then those of the message, makes the client's reply.
        frame: The reply on the link; None where nothing is sent.
        training: How the client trained.
        is_lasting: Whether it holds for later messages too, which differ from this one in values of trees.
    """

    requests: Sequence[Sequence[Effort]]
    fits: Sequence[SharedFit]
    sent: Sequence[SentTree]
    make_reply: Make
    frame: OnLink | None
    training: TrainingConfig
    is_lasting: bool

    def start(
        self,
        engine: Engine,
        trees: Sequence[Tree],
        clients: Sequence[int],
        key: Key,
        counts: Sequence[Sequence[int]],
        ends_ns: Sequence[int],
        round: int,  # noqa: A002
    ) -> SharedReplies:
        """Start the fits whose results are sent; nobody can look at the others.

        Args:
            engine: Who does them.
            trees: Those of the message.
            clients: The clients.
            key: Of the hook of one of them.
            counts: The numbers in the keys of their hooks.
            ends_ns: When the first of each job ends.
            round: The round.
        """
        results, place = dict[int, LikeResults](), partial(place_of, round=round)
        for number in sorted({tree.fit for tree in self.sent}):
            fit = self.fits[number]
            seeds = key.child(fit.seed_name).seeds(counts)
            fits = LikeFits(fit.make(trees).of_client(clients[0], seeds[0]), clients, seeds)
            results[number] = start_like(engine, fits, ends_ns[number], fit.flops, place)
        return SharedReplies(self, trees, len(clients), results)


class SharedReplies:
    """The replies of like clients.

    Args:
        hook: What their hooks do.
        trees: Those of the message.
        num_clients: How many they are.
        results: Those of the fits, by their numbers.
    """

    def __init__(
        self, hook: SharedHook, trees: Sequence[Tree], num_clients: int, results: Mapping[int, LikeResults]
    ) -> None:
        self._hook, self._trees, self._num_clients, self._results = hook, trees, num_clients, results

    def replies(self) -> list[Message | None]:
        """Return the replies of all, when their jobs have ended."""
        make, received = self._hook.make_reply, self._trees
        if not self._hook.sent:
            return [make(received)] * self._num_clients
        of_fits = [self._results[fit].trees(name, part, form) for fit, name, part, form in self._hook.sent]
        return [make((*trees, *received)) for trees in zip(*of_fits, strict=True)]

    @cached_property
    def are_in_range(self) -> bool:
        """Whether no trained scalar of any reply is known to be out of range."""
        return all(results.are_in_range for results in self._results.values())


def loads_of_jobs(devices: Device, key: Key, counts: Sequence[Sequence[int]], jobs: range) -> Array:
    """Return the factors on the times of clients' jobs, float64 ``[clients, jobs]``.

    Args:
        devices: Their devices, as one (:meth:`fedsim.fleet.Fleet.speeds`).
        key: Of the hook of one of them.
        counts: The numbers of each client and of the dispatch to it.
        jobs: The numbers of the jobs in the hook, from 1.
    """
    variations: Any = devices.variation
    laws: Any = [None] * len(counts) if devices.load is None else devices.load
    factors = [
        loads_of(variations.tolist(), laws, key.child("load", job), [(*numbers, job) for numbers in counts])
        for job in jobs
    ]
    return np.array(factors).T


def taken_apart(message: Message | None) -> tuple[Hashable | None, list[Tree]]:
    """Return what a received message is apart from the values of its trees, and the trees.

    None and no trees where it holds arrays outside of trees, or where a tree is pending.
    """
    trees = list[Tree]()
    try:
        return skeleton(message, trees), trees
    except TypeError:
        return None, []


def skeleton(value: Any, trees: list[Tree]) -> Hashable:
    """Return what a value is apart from the values of the trees in it, which are appended.

    Raises:
        TypeError: An array outside a tree, or a tree that is pending.
    """
    cls = type(value)
    if cls is np.ndarray or (cls is PendingTree and value.is_pending):
        raise TypeError(cls)
    if cls is RowTree or (
        isinstance(value, Mapping) and value and all(type(part) is np.ndarray for part in value.values())
    ):
        trees.append(value)
        return value.form if cls is RowTree else Form.of(value)
    if isinstance(value, float | np.floating):
        return cls, repr(value)  # which tells 0.0 from -0.0
    if is_leaf(cls):
        return cls, value
    return cls, tuple([(name, skeleton(part, trees)) for name, part in parts(value).items()])


def making(value: Any, slot_of: Callable[[Tree], int | None]) -> Make:
    """Return what makes a value with other trees in the places of some.

    Args:
        value: The value.
        slot_of: Returns the number of a tree among those that will be given; None for one that stays.

    Raises:
        KeyError: Such a tree is in a value of another kind than a message, a fit, an extra, a model, a
            mapping, a list or a tuple.
    """
    return _making(value, slot_of) or (lambda trees: value)


def _making(value: Any, slot_of: Callable[[Tree], int | None]) -> Make | None:
    """Return the same, or None where no tree is replaced."""
    cls = type(value)
    if isinstance(value, Mapping) and (slot := slot_of(value)) is not None:
        return itemgetter(slot)
    if cls is PendingTree:
        return None
    whole = dict(parts(value))
    made = [(name, make) for name, part in whole.items() if (make := _making(part, slot_of)) is not None]
    if not made:
        return None
    whole |= {name: None for name, _ in made}  # which may not keep the trees alive

    def changed(trees: Sequence[Tree]) -> dict[Any, Any]:
        its = whole.copy()
        for name, make in made:
            its[name] = make(trees)
        return its

    def message(trees: Sequence[Tree]) -> Any:
        # Its fields have been checked once, and the trees have the same form.
        made_message = object.__new__(cls)
        vars(made_message).update(changed(trees))
        return made_message

    if isinstance(value, Message):
        return message
    if isinstance(value, Mapping):
        return changed
    if cls in _RECORDS:
        return lambda trees: cls(*changed(trees).values())
    if cls not in (list, tuple):
        raise KeyError(cls)
    return lambda trees: cls(changed(trees).values())
