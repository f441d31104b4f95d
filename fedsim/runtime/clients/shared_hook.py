"""A hook that runs once for several clients.

A client without state often trains what it has received and sends that, as in FedAvg. Then the hooks of
clients that hold equally many samples do the same, but for the samples, the seeds and the time that it takes.
So the hook of the first client runs, and the others get its jobs and its reply with their own samples, seeds
and results. This holds only if the hook has neither asked who its client is nor looked at a result, which
its context records; otherwise each client's own hook runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, cast

import numpy as np

from fedsim.algorithms.contexts import ClientContext, place_of
from fedsim.clock import VirtualTimeLoop
from fedsim.clock.loop import watched
from fedsim.data import Split
from fedsim.engine.cost import duration_s, loads_of
from fedsim.engine.engine import Engine
from fedsim.engine.jobs import Fitted, Samples
from fedsim.engine.pending_fit import Part
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.engine.shared_fit import LikeResults, SharedFit, can_be_shared
from fedsim.fleet import Device
from fedsim.params import Array, Form, Model, PendingTree, Tree
from fedsim.rng import Key
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.walk import instances, parts
from fedsim.wire import Message

Make = Callable[[Sequence[Tree]], Any]
"""Makes a value with other trees in it."""


class SharedContext(ClientContext):
    """The context of a client whose hook may run for several clients.

    Attributes:
        is_specific: Whether the hook has asked for what other clients may have another value of.
        names: The names from which seeds of fits were derived, by seed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_specific = False
        self.names: dict[int, str] = {}

    @property
    def client(self) -> int:
        """Address of the party."""
        self.is_specific = True
        return super().client

    @property
    def dispatch(self) -> int:
        """Number of the dispatch."""
        self.is_specific = True
        return super().dispatch

    @property
    def key(self) -> Key:
        """Names the generators of this hook."""
        self.is_specific = True
        return super().key

    @property
    def hook_key(self) -> Key:
        """The same, for whoever is not the hook."""
        return super().key

    def num_samples(self, split: Split = "train") -> int:
        """Return how many samples of a split the client holds."""
        self.is_specific |= split != "train"
        return super().num_samples(split)

    def own(self, split: Split) -> Samples:
        """Return the client's own samples of a split."""
        self.is_specific |= split != "train"
        return super().own(split)

    def own_values(self, split: Split = "train") -> tuple[Array, Array]:
        """Return the client's samples themselves."""
        self.is_specific = True
        return super().own_values(split)

    def labels(self, samples: Samples) -> Array:
        """Return the labels of samples."""
        self.is_specific = True
        return super().labels(samples)

    def _seed(self, name: str, key: Key | None = None) -> int:
        self.is_specific |= key is not None
        seed = super()._seed(name, key)
        self.names[seed] = name
        return seed


class SharedHook:
    """The hook of the first of several like clients.

    Args:
        engine: Who does its jobs.

    Attributes:
        context: What it is given; None before it begins.
        requests: What it has asked for.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.context: SharedContext | None = None
        self.requests: list[JobRequest] = []
        self._fits: list[SharedFit] = []
        # Of the trees of its results, by their ids: number of the fit, name of the model, part, form. Once it
        # has ended, of those in its reply alone.
        self._trees: dict[int, tuple[int, str, Part, Form]] = {}
        self._is_refused = False
        self._make_reply: Make | None = None
        self._reply: Message | None = None
        self._results: dict[int, LikeResults] = {}  # by the number of the fit
        self._num_clients = 1

    def go_on(self, turn: Turn, loop: VirtualTimeLoop) -> JobRequest | None:
        """Let the hook go on beforehand; see :meth:`Turn.go_on_ahead`."""
        with watched(loop) as watch:
            request = turn.go_on_ahead()
        self._is_refused |= watch.is_used
        return request

    def results(self, request: JobRequest, ends_ns: Sequence[int]) -> list[Any] | None:
        """Return the pending results of a request; None where the hook cannot run for several clients."""
        self._is_refused |= not all(can_be_shared(timed.job) for timed in request.jobs)
        if self._is_specific:
            return None
        self.requests.append(request)
        results = list[Fitted]()
        for timed, end_ns in zip(request.jobs, ends_ns, strict=True):
            fit = SharedFit(self._engine, request, timed, end_ns)
            results.append(fitted := fit.fitted())
            for name, model in fitted.models.items():
                self._note(name, model)
            self._fits.append(fit)
        return results

    def _note(self, name: str, model: Model) -> None:
        trees: Mapping[Part, Tree] = {"params": model.params, "buffers": model.buffers}
        for part, tree in trees.items():
            if type(tree) is PendingTree:
                self._trees[id(tree)] = len(self._fits), name, part, tree.form

    @property
    def _is_specific(self) -> bool:
        return self._is_refused or self.context is None or self.context.is_specific

    def has_run_for_all(self, turn: Turn, reply: Message | None) -> bool:
        """Say whether the hook, which has ended, has run for all like clients.

        Args:
            turn: Of the first.
            reply: Its reply, as the server receives it.
        """
        if turn.has_left_notes or turn.result[0] is not None:
            return False
        if self._is_specific or any(fit.is_looked_at for fit in self._fits):
            return False
        sent = {id(tree) for tree in instances(reply, PendingTree)}
        self._trees = {tree: known for tree, known in self._trees.items() if tree in sent}
        try:
            self._make_reply = _making(reply, {tree: slot for slot, tree in enumerate(self._trees)})
        except KeyError:
            return False
        self._reply = reply
        return True

    def start(self, clients: Sequence[int], counts: Sequence[Sequence[int]], ends_ns: Sequence[int]) -> None:
        """Start the fits of all whose results they send; nobody can look at the others.

        Args:
            clients: The others.
            counts: The numbers in the keys of their hooks.
            ends_ns: When the first of each job ends.
        """
        context, self._num_clients = cast(SharedContext, self.context), 1 + len(clients)
        place = partial(place_of, round=context.round)
        for number in sorted({fit for fit, *_ in self._trees.values()}):
            fit = self._fits[number]
            seeds = context.hook_key.child(context.names[fit.fit.seed]).seeds(counts)
            self._results[number] = fit.start(clients, seeds, ends_ns[number], place)

    def replies(self) -> Sequence[Message | None]:
        """Return the replies of all, that of the first included, when their jobs have ended."""
        if (make := self._make_reply) is None:
            return [self._reply] * self._num_clients
        of_fits = [
            self._results[fit].trees(name, part, form) for fit, name, part, form in self._trees.values()
        ]
        return [make(trees) for trees in zip(*of_fits, strict=True)]

    @property
    def are_in_range(self) -> bool:
        """Whether no trained scalar of any reply is known to be out of range."""
        return all(results.are_in_range for results in self._results.values())


def part_of(devices: Device, span: slice) -> Device:
    """Return some of several devices that are given as one."""
    values: Any = [value[span] if isinstance(value, np.ndarray) else value for value in devices]
    return Device._make(values)


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


def durations_of(jobs: Sequence[TimedJob], devices: Device, loads: Array) -> Array:
    """Return how long devices take for jobs, s, float64 ``[clients, jobs]``, given the factors on them."""
    return np.stack(
        [duration_s(devices, timed.effort, load) for timed, load in zip(jobs, loads.T, strict=True)], axis=1
    )


def _making(value: Any, slots: Mapping[int, int]) -> Make | None:
    """Return what makes a value with other trees in the places of some; None where none is in it.

    Args:
        value: The value.
        slots: The numbers of the trees by their ids.

    Raises:
        KeyError: A pending tree is in it that is none of these, or one of these is in a value of another kind
            than a message, a mapping, a list or a tuple.
    """
    cls = type(value)
    if cls is PendingTree:
        return itemgetter(slots[id(value)]) if value.is_pending else None
    whole = dict(parts(value))
    made = [(name, make) for name, part in whole.items() if (make := _making(part, slots)) is not None]
    if not made:
        return None

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
    if cls not in (list, tuple):
        raise KeyError(cls)
    return lambda trees: cls(changed(trees).values())
