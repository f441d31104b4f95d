"""The hook of the first of several like clients: it runs under observation.

Its context, its results and the trees of its message tell what it asks for. If it asks for what differs from
client to client, it cannot be shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from fedsim.algorithms.contexts import ClientContext, place_of
from fedsim.bus.memory import OnLink
from fedsim.clock import VirtualTimeLoop
from fedsim.clock.loop import watched
from fedsim.data import Split
from fedsim.engine.cost import Effort
from fedsim.engine.engine import Engine
from fedsim.engine.jobs import Fit, Fitted, Samples
from fedsim.engine.pending_fit import Part, can_wait
from fedsim.engine.requests import JobRequest
from fedsim.engine.shared_fit import LeadingFit
from fedsim.params import Array, Form, Model, PendingTree, Tree
from fedsim.rng import Key
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.runtime.clients.shared_hook import SentTree, SharedFit, SharedHook, making, taken_apart
from fedsim.walk import instances
from fedsim.wire import Message


class LeadingContext(ClientContext):
    """The context of a client whose hook may run for several clients.

    Attributes:
        is_specific: Whether the hook has asked for what other clients may have another value of.
        is_of_round: Whether it has asked for what other rounds may have another value of.
        names: The names from which seeds of fits were derived, by seed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_specific = self.is_of_round = False
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
    def round(self) -> int:
        """The round in which the server asked."""
        self.is_of_round = True
        return self._round

    @round.setter  # noqa: A003 - a hook's name for it
    def round(self, number: int) -> None:
        self._round = number

    def _place(self) -> str:
        return place_of(self._client, self._round)

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


class LeadingHook:
    """A hook that runs for one client, and perhaps for all like it.

    Args:
        engine: Who does its jobs.
        message: What the client has received.
        is_watched: Whether the hook is given trees that tell when it looks at them. They are no dictionaries,
            so hooks of private algorithms get the trees themselves, and what they do is not kept.

    Attributes:
        message: The same, with trees that tell when the hook looks at their values.
        trees: The trees of the message itself.
        context: What the hook is given; None before it begins.
    """

    def __init__(self, engine: Engine, message: Message | None, *, is_watched: bool = True) -> None:
        self._engine = engine
        self.context: LeadingContext | None = None
        self.message = message
        self._is_refused = False
        like, self.trees = taken_apart(message) if is_watched else (None, [])
        self._is_lasting = like is not None
        # The same trees, as the hook sees them.
        self._watched = [PendingTree(Form.of(tree), partial(self._looked_at, tree)) for tree in self.trees]
        if self.trees:
            # By place: one tree may lie in two places of this message, and not of a later one.
            numbers = defaultdict[int, list[int]](list)
            for number, tree in reversed(list(enumerate(self.trees))):
                numbers[id(tree)].append(number)
            make = making(message, lambda tree: numbers[id(tree)].pop() if id(tree) in numbers else None)
            self.message = make(self._watched)
        self._requests: list[Sequence[Effort]] = []
        self._shared: list[SharedFit] = []
        self._fits: list[LeadingFit] = []
        self._trained: dict[int, SentTree] = {}  # the trees of its results, by their ids

    def _looked_at(self, tree: Tree) -> Tree:
        self._is_lasting = False
        return tree

    def go_on(self, turn: Turn, loop: VirtualTimeLoop) -> JobRequest | None:
        """Let the hook go on beforehand; see :meth:`Turn.go_on_ahead`."""
        with watched(loop) as watch:
            request = turn.go_on_ahead()
        self._is_refused |= watch.is_used
        return request

    def results(self, request: JobRequest, ends_ns: Sequence[int]) -> list[Any] | None:
        """Return the pending results of a request; None where the hook cannot run for several clients."""
        slots = {id(tree): number for number, tree in enumerate(self._watched)}
        results = list[Fitted]()
        for timed, end_ns in zip(request.jobs, ends_ns, strict=True):
            job = timed.job
            if self._is_specific or not (isinstance(job, Fit) and can_wait(job)):
                self._is_refused = True
                return None
            try:
                make = making(job, partial(_slot, slots))
            except KeyError:  # it depends on a result
                self._is_refused = True
                return None
            flops = timed.effort.total.flops
            self._shared.append(SharedFit(make, cast(LeadingContext, self.context).names[job.seed], flops))
            fit = LeadingFit(self._engine, make(self.trees), flops, end_ns, request.place)
            results.append(fitted := fit.fitted())
            for name, model in fitted.models.items():
                self._remember(name, model)
            self._fits.append(fit)
        self._requests.append([timed.effort for timed in request.jobs])
        return results

    def _remember(self, name: str, model: Model) -> None:
        trees: Mapping[Part, Tree] = {"params": model.params, "buffers": model.buffers}
        for part, tree in trees.items():
            if type(tree) is PendingTree:
                self._trained[id(tree)] = SentTree(len(self._fits), name, part, tree.form)

    @property
    def _is_specific(self) -> bool:
        return self._is_refused or self.context is None or self.context.is_specific

    def shared(self, turn: Turn, reply: Message | None, frame: OnLink | None) -> SharedHook | None:
        """Return what the hook, which has ended, does for all like clients; None where it does not.

        Args:
            turn: The turn of the hook.
            reply: Its reply, as the server receives it.
            frame: The reply on the link.
        """
        if turn.has_left_notes or turn.result[0] is not None:
            return None
        if self._is_specific or any(fit.is_looked_at for fit in self._fits):
            return None
        in_reply = {id(tree) for tree in instances(reply, PendingTree)}
        sent = {tree: its for tree, its in self._trained.items() if tree in in_reply}
        slots = {tree: slot for slot, tree in enumerate([*sent, *map(id, self._watched)])}
        try:
            make_reply = making(reply, partial(_slot, slots))
        except KeyError:
            return None
        context = cast(LeadingContext, self.context)
        is_lasting = self._is_lasting and not context.is_of_round
        return SharedHook(
            self._requests, self._shared, list(sent.values()), make_reply, frame, context.training, is_lasting
        )


def _slot(slots: Mapping[int, int], tree: Tree) -> int | None:
    slot = slots.get(id(tree))
    if slot is None and type(tree) is PendingTree and tree.is_pending:
        raise KeyError(tree)
    return slot
