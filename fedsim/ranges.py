"""Types of the plain numbers in settings, one for each kind of number, with its range.

Quantities with a dimension have their ranges in :mod:`fedsim.units`. A range is wider than anybody needs, and
narrow enough that counts fit into the arrays that store them and factors into 32-bit floats. A kind of number
that only one setting has is declared there.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import Field

from fedsim.config import AsTuple

MAX_SEED = 2**63 - 1
"""The largest whole number that every TOML parser keeps."""

MAX_CLIENTS = 10**7
"""Clients of a run, all groups together; drawing a fleet takes some hundred bytes for each."""

MAX_SAMPLES = 10**9
"""Samples of one kind that a client has; the sum over all clients fits into 64 bits."""

MAX_CLASSES = 10**5
"""Classes of a task, each of which is an output of every model."""

MAX_WEIGHT = 1e12
"""The largest weight of a value, of a row or of a label, so that sums of weights are finite."""

Few = Field(min_length=1, max_length=100)
"""Length of a list whose entries are built one by one."""

Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
"""A seed of random generators."""

MAX_ROUNDS = 10**9
"""Rounds of a run; as many as one has that only a budget ends."""

Rounds = Annotated[int, Field(ge=1, le=MAX_ROUNDS)]
"""Rounds of a run."""

Interval = Annotated[int, Field(ge=0, le=10**9)]
"""Rounds from one event to the next; what 0 means is for the setting to say."""

Clients = Annotated[int, Field(ge=1, le=MAX_CLIENTS)]
"""A number of clients, or of groups of clients, at least one."""

PositiveInterval = Annotated[int, Field(ge=1, le=10**9)]
"""Rounds, or steps, from one event to the next, at least one."""

Samples = Annotated[int, Field(ge=0, le=MAX_SAMPLES)]
"""A number of samples, perhaps 0."""

PositiveSamples = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
"""A number of samples, at least one."""

BatchSize = Annotated[int, Field(ge=1, le=10**6)]
"""Samples of one batch."""

Epochs = Annotated[int, Field(ge=0, le=10**6)]
"""Passes over the samples, perhaps 0."""

PositiveEpochs = Annotated[int, Field(ge=1, le=10**6)]
"""Passes over the samples, at least one."""

Steps = Annotated[int, Field(ge=0, le=10**6)]
"""Steps of an optimiser, one batch each, perhaps 0."""

Classes = Annotated[int, Field(ge=1, le=MAX_CLASSES)]
"""Classes of samples."""

Tokens = Annotated[int, Field(ge=1, le=10**6)]
"""Tokens of a text."""

Width = Annotated[int, Field(ge=1, le=10**6)]
"""Units, channels or features of a layer."""

Widths = Annotated[tuple[Width, ...], AsTuple, Few]
"""Widths of layers, from the input on."""

ShownClients = Annotated[int, Field(ge=3, le=10**6)]
"""Clients of a timeline: some slow, some in the middle, some fast."""

Workers = Annotated[int, Field(ge=1, le=1024)]
"""Jobs that run at once."""

Processes = Annotated[int, Field(ge=1, le=256)]
"""Processes of this machine that host clients."""

Minutes = Annotated[int, Field(ge=1, le=10**6)]
"""Real time, min."""

LearningRate = Annotated[float, Field(gt=0, le=1e6)]
"""Factor of a gradient in a step."""

Norm = Annotated[float, Field(gt=0, le=1e6)]
"""Norm to which a longer gradient is clipped."""

Coefficient = Annotated[float, Field(ge=0, le=1e6)]
"""Factor of a term in a sum; 0 leaves the term out."""

Temperature = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Divisor of logits in a softmax."""

Concentration = Annotated[float, Field(ge=1e-6, le=1e6)]
"""The parameter of a symmetric Dirichlet distribution: the smaller, the more unequal the shares."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A share of a whole, from none to all."""

PartialShare = Annotated[float, Field(ge=0, lt=1)]
"""A share of a whole, less than all of it; also a momentum, or the probability of a dropout layer."""

PositiveShare = Annotated[float, Field(gt=0, le=1)]
"""A share of a whole, more than none of it; also a quantile, or a factor that shrinks something."""

Weight = Annotated[float, Field(ge=0, le=MAX_WEIGHT)]
"""A weight in proportion to others, perhaps 0."""

PositiveWeight = Annotated[float, Field(gt=0, le=MAX_WEIGHT)]
"""A weight above 0, in proportion to others."""


def ends(kind: Any) -> tuple[int, int]:
    """Return the least and the largest value of a kind of whole number, such as :data:`Seed`."""
    rules = get_args(kind)[1].metadata
    (least,) = (rule.ge for rule in rules if hasattr(rule, "ge"))
    (most,) = (rule.le for rule in rules if hasattr(rule, "le"))
    return least, most
