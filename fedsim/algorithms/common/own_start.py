"""What a client's own model starts from, where it has one: the same values for all, or its own."""

from __future__ import annotations

from fedsim.algorithms.contexts import ClientContext
from fedsim.config import Config
from fedsim.params import Model


class OwnStartConfig(Config):
    """How clients' own models start."""

    same_start: bool = True
    """Begin all models of an architecture with the same values; else each client's with values of its own, as
    in the public code of KT-pFL."""


def own_start(client: ClientContext, config: OwnStartConfig, architecture: str | None = None) -> Model:
    """Return the start values of a client's own model, by default of its own architecture."""
    return client.initial_model(architecture, variant=0 if config.same_start else 1 + client.client)
