"""The clients' side of a round in which predictions travel: share them, then distil what comes back.

A client predicts the public samples that the server names (*share*). Later it learns from the server's answer
about these samples (*distil*). p: samples, N: classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedsim.algorithms.common import public_samples
from fedsim.algorithms.common.public_samples import Sent
from fedsim.algorithms.contexts import ClientContext
from fedsim.engine.jobs import PublicSamples, Stream, per_sample
from fedsim.engine.losses import PUBLIC, TEACHER, Loss
from fedsim.engine.steps import Descent
from fedsim.params import Array, Model
from fedsim.wire import Form, LogitsDown, PublicBatch, PublicData, indices_digest


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client remembers.

    Attributes:
        model: Its own model; never travels.
        positions: The public samples of its last share, int64 ``[p]``.
        samples: The samples themselves; None before the first share, and once they were learned from.
    """

    model: Model
    positions: Array
    samples: Sent | PublicSamples | None = None


async def shared(
    client: ClientContext, model: Model, message: PublicBatch | PublicData, batch_size: int
) -> tuple[ClientState, Array]:
    """Predict the samples that the server names; return the client's state and its logits ``[p, N]``."""
    kept = public_samples.announced(message)
    logits = await client.predict(model, public_samples.samples_of(kept), batch_size=batch_size)
    return ClientState(model, message.indices, kept), logits


def answer(values: Array, positions: Array, asked: int, form: Form, temperature: float) -> LogitsDown:
    """Return the server's answer; clients know the samples, unless some of those asked about were left out.

    Args:
        values: ``[p, N]``.
        positions: The samples that they are about, int64 ``[p]``.
        asked: How many samples clients were asked about.
        form: Whether values are logits or probabilities.
        temperature: What the logits were divided by.
    """
    named = None if len(positions) == asked else positions
    return LogitsDown(
        values, form=form, temperature=temperature, indices_digest=indices_digest(positions), indices=named
    )


async def distilled(
    client: ClientContext,
    state: ClientState,
    message: LogitsDown,
    loss: Loss,
    *,
    batch_size: int,
    lr: float | None,
    epochs: int,
    name: str,
    shuffled: bool = True,
) -> Model | None:
    """Return the client's model, trained on the server's answer; None where that is on other samples.

    Args:
        client: Who learns.
        state: After the share.
        message: The answer.
        loss: Distance to it.
        batch_size: Public samples in a mini-batch.
        lr: Learning rate; that of the training if None.
        epochs: Passes over the samples.
        name: Names the job and its generators.
        shuffled: Whether each pass takes the samples in another order.
    """
    samples = public_samples.answered(state.positions, state.samples, message)
    if samples is None:
        return None
    fitted = await client.fit(
        state.model,
        step=Descent(loss=loss),
        streams={PUBLIC: Stream(samples, batch_size, shuffled=shuffled)},
        extras={TEACHER: per_sample(message.values, PUBLIC)},
        optimiser=client.training.make_optimiser(lr),
        epochs=epochs,
        name=name,
    )
    return fitted.model
