"""An algorithm that learns nothing: it measures links and devices with frames and jobs of three sizes.

With frames of one length nobody can tell a latency from a rate, and with jobs of one size no fixed overhead
from a speed. ``fedsim run SCENARIO --algorithm fedsim.planning.probe.Probe``, over sockets, leaves the folder
of a run from which ``fedsim calibrate`` finds all four. Nine rounds have each pair of sizes once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.algorithms.base import About, Algorithm, Exchange, Exchanges, Predictor, Predictors, Replies
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import AsTuple, Config
from fedsim.ranges import PositiveSamples, Steps
from fedsim.wire import PublicData

Three = Field(min_length=3, max_length=3)


class ProbeConfig(Config):
    """The sizes of probes."""

    frame_bytes: Annotated[tuple[PositiveSamples, ...], AsTuple, Three] = (10_000, 100_000, 1_000_000)
    """Bytes that frames carry."""
    steps: Annotated[tuple[Steps, ...], AsTuple, Three] = (1, 4, 16)
    """Mini-batches of jobs, of the size and with the model that the scenario gives."""


class Probe(Algorithm[ProbeConfig, None, None]):
    """Frames and jobs of three sizes, in turn."""

    about = About(kind="reference", down="frame_bytes", up="frame_bytes")
    discounted = "nothing"
    mixed_architectures = True

    @property
    def exchanges(self) -> Exchanges[None, None]:
        """One, in which frames of both directions and jobs have sizes that do not depend on each other."""
        return (
            Exchange("probe", instruct=self.instruct, local=self.local, merge=self.merge, reply=PublicData),
        )

    def start(self, server: ServerContext) -> None:
        """Nothing is known."""

    def join(self, client: ClientContext) -> None:
        """Nothing is known."""

    async def instruct(
        self, server: ServerContext, state: None, cohort: Sequence[int]
    ) -> tuple[None, dict[int, PublicData]]:
        """Send everyone as much."""
        return None, dict.fromkeys(cohort, self._filled(server.round))

    async def local(self, client: ClientContext, state: None, message: PublicData) -> tuple[None, PublicData]:
        """Train for some steps, keep nothing of it, and reply."""
        number = client.round
        await client.fit(client.initial_model(), steps=self.config.steps[(number + number // 3) % 3])
        return None, self._filled(number // 3)

    async def merge(self, server: ServerContext, state: None, replies: Replies[PublicData]) -> None:
        """Learn nothing."""

    async def models_of(self, observer: ClientContext, server_state: None, client_state: None) -> Predictors:
        """Return the start values."""
        return {"global": Predictor(observer.initial_model())}

    def _filled(self, number: int) -> PublicData:
        num_bytes = self.config.frame_bytes[number % 3]
        return PublicData(np.zeros(1, np.int64), np.zeros((1, num_bytes), np.uint8))


PLUGIN = Probe
