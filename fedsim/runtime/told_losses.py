"""Losses that clients tell the server, for selectors that choose by them.

A client measures the loss of the model that it goes on with (``own_model`` of the algorithm) on its own
training samples. That is a forward pass of its own and takes its time, so the figure means the same in every
algorithm, whatever its training minimises. It travels in one of two ways:

- *with a reply* to the first exchange of a round that concerns the cohort: the reply becomes a message of a
  kind of its own, which has one field more. The model is the one before this turn's training.
- *as an answer* to a question before a selection: a dispatch of its own, with the frame that ``send_last`` of
  the algorithm makes, which changes no state at either side.

In a run whose selector does not ask for losses nothing of this exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, get_type_hints

import numpy as np

from fedsim.algorithms.base import Algorithm, Exchange, Local
from fedsim.algorithms.contexts import ClientContext
from fedsim.engine.jobs import InlineSamples, Samples
from fedsim.errors import Fault
from fedsim.params import Array, Model
from fedsim.plugins import name_of
from fedsim.runtime.policies.selectors.base import LossMeasure, Selector
from fedsim.wire import Message, message

QUESTION = "loss"
"""Name of the exchange in which clients are asked before a selection."""

_FIELD = "told_loss"
_MAX_LOSS = 1e30
"""A larger loss is as good as unknown, and its square would be no number."""


@message("loss")
class ToldLoss(Message):
    """A client's answer.

    Attributes:
        told_loss: Its loss; None where that is no number.
    """

    told_loss: float | None


def exchange_of_cohort(algorithm: Algorithm[Any, Any, Any]) -> Exchange | None:
    """Return the first exchange of a round that concerns the cohort; None where none does."""
    return next((one for one in algorithm.exchanges if (one.when, one.who) == ("round", "cohort")), None)


def question(algorithm: Algorithm[Any, Any, Any], selector: Selector[Any]) -> Exchange | None:
    """Return the exchange in which clients are asked before a selection; None where they are not."""
    if selector.measure is None or not selector.asks:
        return None
    local = partial(_answer, algorithm, selector.measure)
    return Exchange(QUESTION, instruct=algorithm.send_last, local=local, reply=ToldLoss)


def at_clients(algorithm: Algorithm[Any, Any, Any], selector: Selector[Any]) -> list[Exchange]:
    """Return the exchanges as clients take part in them: the algorithm's, and what the selector adds."""
    exchanges, measure = list(algorithm.exchanges), selector.measure
    if measure is None:
        return exchanges
    if (asked := question(algorithm, selector)) is not None:
        return [*exchanges, asked]
    telling = exchange_of_cohort(algorithm)
    return [
        replace(one, local=partial(_tell, algorithm, measure, one.local, one.reply))
        if telling is not None and one.name == telling.name and one.local is not None
        else one
        for one in exchanges
    ]


def kinds(algorithm: Algorithm[Any, Any, Any], selector: Selector[Any]) -> Sequence[type[Message]]:
    """Return the kinds of message that may travel beside the algorithm's."""
    if selector.measure is None:
        return ()
    telling = exchange_of_cohort(algorithm)
    if selector.asks or telling is None or telling.reply is None:
        return (ToldLoss,)
    return (telling_kind(telling.reply),)


def told(reply: Message | None) -> float | None:
    """Return the loss that a message tells, at least 0; NaN where it is no loss, None where it tells none."""
    if not hasattr(reply, _FIELD):
        return None
    loss: float | None = getattr(reply, _FIELD)
    return loss if loss is not None and 0 <= loss <= _MAX_LOSS else np.nan


def faults(algorithm: Algorithm[Any, Any, Any], selector: Selector[Any]) -> Iterator[Fault]:
    """Yield why clients cannot tell a loss, where the selector wants one."""
    if selector.measure is None:
        return
    name, chosen = name_of(algorithm), name_of(selector)
    telling = exchange_of_cohort(algorithm)
    why = None
    if telling is None:
        why = f"no exchange of a round of {name!r} concerns a cohort"
    elif not _has_model(algorithm):
        why = f"{name!r} does not say which model a client goes on with (own_model)"
    elif not selector.asks and telling.reply is None:
        why = f"clients of {name!r} send no frame with which it could come"
    if why is not None:
        problem = f"{chosen!r} chooses by clients' losses, and {why}"
        yield Fault("participation.selector", problem, "write 'uniform' or 'by_size', or another algorithm")


def telling_kind(kind: type[Message]) -> type[Message]:
    """Return the kind of message that is another one with a loss, always the same class."""
    if kind not in _TELLING:
        fields = {"__annotations__": {_FIELD: float | None}, _FIELD: None, "__module__": kind.__module__}
        cls = type(f"{kind.__name__}WithLoss", (kind,), fields)
        _TELLING[kind] = message(f"{kind.KIND}+loss", data=kind.IS_DATA)(cls)
    return _TELLING[kind]


_TELLING: dict[type[Message], type[Message]] = {}


async def _answer(
    algorithm: Algorithm[Any, Any, Any], measure: LossMeasure, client: ClientContext, state: Any, message: Any
) -> tuple[Any, ToldLoss]:
    """Measure the loss, and leave the state as it is."""
    return state, ToldLoss(await _measured(algorithm, measure, client, state, message))


async def _tell(
    algorithm: Algorithm[Any, Any, Any],
    measure: LossMeasure,
    local: Local[Any, Any, Any],
    kind: Any,
    client: ClientContext,
    state: Any,
    message: Any,
) -> tuple[Any, Any]:
    """Do what the algorithm does, and put the loss before it into a reply of the right kind."""
    after, reply = await local(client, state, message)
    if reply is None or type(reply) is not kind:
        return after, reply
    values = {name: getattr(reply, name) for name in reply.PLAN.names}
    loss = await _measured(algorithm, measure, client, state, message)
    return after, telling_kind(kind)(**values, **{_FIELD: loss})


async def _measured(
    algorithm: Algorithm[Any, Any, Any], measure: LossMeasure, client: ClientContext, state: Any, message: Any
) -> float | None:
    """Return a client's loss; None where it is no number."""
    model: Model = await algorithm.own_model(client, state, message)
    samples: Samples = client.own("train")
    if measure.samples is not None and measure.samples < client.num_samples():
        x, y = client.own_values()
        draw = client.key.child("loss").numpy()
        rows = draw.choice(len(y), measure.samples, replace=False, shuffle=False)
        samples = InlineSamples(x[rows], y[rows])
    outputs = await client.predict(model, samples)
    losses = sample_losses(outputs.astype(np.float64), client.labels(samples))
    with np.errstate(all="ignore"):
        loss = float(losses.mean() if measure.form == "mean" else np.sqrt(np.square(losses).mean()))
    return loss if 0 <= loss <= _MAX_LOSS else None


def sample_losses(outputs: Array, labels: Array) -> Array:
    """Return each sample's cross-entropy, nat, or squared error where labels are targets, ``[n]``.

    Args:
        outputs: Of a model, ``[n, N]``.
        labels: Classes or targets, ``[n]``.
    """
    with np.errstate(all="ignore"):
        if labels.dtype.kind == "f":
            errors: Array = np.square(outputs[:, 0] - labels)
            return errors
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        entropies: Array = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
        return entropies


def _has_model(algorithm: Algorithm[Any, Any, Any]) -> bool:
    """Say whether ``own_model`` can be asked: it is the algorithm's own, or states have a model."""
    cls = type(algorithm)
    if cls.own_model is not Algorithm.own_model:
        return True
    if cls.join is Algorithm.join:  # clients remember nothing
        return False
    state: Any = Any
    with suppress(NameError):  # an annotation that only a type checker can read
        state = get_type_hints(cls.join).get("return", Any)
    if state is Any or isinstance(state, TypeVar):
        return True
    return isinstance(state, type) and (
        issubclass(state, Model) or "model" in {*get_type_hints(state), *vars(state)}
    )
