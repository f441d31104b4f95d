"""Plain numbers of settings: one type for each kind of number, which says what such a number may be.

As quantities with a dimension have a range (:mod:`fedsim.units`), so has every other number of a scenario:
wider than anybody needs, and so narrow that all within it can be computed with. Counts fit into what stores
them, and factors into 32-bit floats. A number of a kind that only one setting has says its range there.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import Field

from fedsim.config import AsTuple

MOST_SEED = 2**63 - 1
"""The largest whole number that TOML promises to keep."""

MOST_CLIENTS = 10**7
"""Clients of a run, of all groups together; at some hundred bytes each while a fleet is drawn."""

MOST_SAMPLES = 10**9
"""Samples of one kind; those of all clients together fit into 64 bits."""

MOST_CLASSES = 10**5
"""Classes, each an output of every model."""

MOST_WEIGHT = 1e12
"""The largest weight of a value, of a row or of a label; a sum of many is finite."""

Few = Field(min_length=1, max_length=100)
"""Of a list whose entries are built, or gone through, one after the other."""

Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
"""A seed, from which generators flow."""

Rounds = Annotated[int, Field(ge=1, le=10**9)]
"""Rounds of a run."""

Interval = Annotated[int, Field(ge=0, le=10**9)]
"""Rounds from one event to the next; what 0 means is for the setting to say."""

Clients = Annotated[int, Field(ge=1, le=MOST_CLIENTS)]
"""Clients, or groups of them, each with one at least."""

Samples = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
"""Samples, perhaps none."""

PositiveSamples = Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
"""Samples, one at least."""

BatchSize = Annotated[int, Field(ge=1, le=10**6)]
"""Samples that are computed with at once."""

Epochs = Annotated[int, Field(ge=0, le=10**6)]
"""Passes over samples, perhaps none."""

PositiveEpochs = Annotated[int, Field(ge=1, le=10**6)]
"""Passes over samples, one at least."""

Steps = Annotated[int, Field(ge=0, le=10**6)]
"""Steps of an optimisation, one mini-batch each, perhaps none."""

Classes = Annotated[int, Field(ge=1, le=MOST_CLASSES)]
"""Classes of samples."""

Tokens = Annotated[int, Field(ge=1, le=10**6)]
"""Tokens of a text."""

Width = Annotated[int, Field(ge=1, le=10**6)]
"""Units, channels or features of a layer."""

Widths = Annotated[tuple[Width, ...], AsTuple, Few]
"""Widths of layers, from the input on."""

Workers = Annotated[int, Field(ge=1, le=1024)]
"""Jobs that run at once."""

Processes = Annotated[int, Field(ge=1, le=256)]
"""Processes of this machine that host clients."""

LearningRate = Annotated[float, Field(gt=0, le=1e6)]
"""What a gradient is multiplied by."""

Norm = Annotated[float, Field(gt=0, le=1e6)]
"""The longest that a gradient may be."""

Coefficient = Annotated[float, Field(ge=0, le=1e6)]
"""What a term of a sum is multiplied by; 0 leaves the term out."""

Temperature = Annotated[float, Field(ge=1e-6, le=1e6)]
"""What logits are divided by."""

Concentration = Annotated[float, Field(ge=1e-6, le=1e6)]
"""The parameter of a symmetric Dirichlet distribution: the smaller, the more unequal the shares."""

Share = Annotated[float, Field(ge=0, le=1)]
"""A share of a whole, from none to all."""

PartialShare = Annotated[float, Field(ge=0, lt=1)]
"""A share of a whole that leaves something of it; also a momentum, and a probability of dropout."""

PositiveShare = Annotated[float, Field(gt=0, le=1)]
"""A share of a whole that is not empty; also a quantile, and a factor by which something shrinks."""

Weight = Annotated[float, Field(ge=0, le=MOST_WEIGHT)]
"""A part in proportion to others, perhaps none."""

PositiveWeight = Annotated[float, Field(gt=0, le=MOST_WEIGHT)]
"""A part in proportion to others."""


def ends(kind: Any) -> tuple[int, int]:
    """Return the least and the largest value of a kind of whole number, such as :data:`Seed`."""
    rules = get_args(kind)[1].metadata
    (least,) = (rule.ge for rule in rules if hasattr(rule, "ge"))
    (most,) = (rule.le for rule in rules if hasattr(rule, "le"))
    return least, most
