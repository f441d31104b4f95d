"""The start values of clients' own models: the same for all, or different ones."""

from __future__ import annotations

from fedsim.algorithms.contexts import Context
from fedsim.config import Config
from fedsim.params import Model


class OwnModelConfig(Config):
    """How clients' own models start."""

    same_start: bool = True
    """Begin all models of an architecture with the same values; else each client's with values of its own, as
    in the public code of KT-pFL."""


def initial_own_model(
    party: Context, config: OwnModelConfig, architecture: str | None = None, *, client: int | None = None
) -> Model:
    """Return the start values of a client's own model; the server can ask for them too.

    Args:
        party: The client or the server.
        config: How clients' models start.
        architecture: Label of the model's architecture; the party's own by default.
        client: The model's client; the party itself by default.
    """
    owner = party.client if client is None else client
    return party.initial_model(architecture, variant=0 if config.same_start else 1 + owner)
