"""How long clients need at least to train and reply: what a deadline must leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fedsim.data import FederatedData
from fedsim.engine.batches import num_steps
from fedsim.engine.cost import Costs, duration_s
from fedsim.engine.fit_job_cache import DEFAULT_STEP
from fedsim.engine.jobs import ClientSamples, Fit, Stream
from fedsim.engine.losses import MODEL, TRAIN
from fedsim.engine.training_config import TrainingConfig
from fedsim.engine.worker_state import Resources
from fedsim.fleet import Fleet
from fedsim.models import Architecture
from fedsim.params import Array, Model, freeze


def least_times_s(
    fleet: Fleet,
    data: FederatedData,
    architectures: Mapping[str, Architecture],
    training: TrainingConfig,
    clients: Array,
    reply_s: Callable[[int], float],
    steps: int,
) -> Iterator[float]:
    """Yield the time that each client needs at least, those with the fastest devices first, s.

    That is for plain descent on its own samples, on the cheapest of the run's architectures, since an
    algorithm may give a client another one than its own, and for a reply.

    Args:
        fleet: The devices.
        data: Who holds how many samples.
        architectures: By label.
        training: How clients train.
        clients: Whose times are wanted.
        reply_s: Gives the time that a client's reply takes at least, 0 where there may be none.
        steps: Mini-batches; as many as ``training`` asks for, if these are fewer.
    """
    resources = Resources.of(data, architectures, "cpu")
    costs, nothing = Costs(resources), freeze({})
    speeds = fleet.values("speed") * fleet.values("efficiency")
    for client in clients[np.argsort(-speeds[clients], kind="stable")].tolist():
        streams = {TRAIN: Stream(ClientSamples(client), training.batch_size)}
        times = []
        for label in architectures:
            passes = list(resources.passes([label], streams).values())
            job = Fit(
                step=DEFAULT_STEP,
                models={MODEL: Model(label, nothing, nothing)},
                trained=(MODEL,),
                streams=streams,
                optimisers={MODEL: training.make_optimiser()},
                num_steps=min(steps, num_steps(passes, training.epochs, training.steps)),
                seed=0,
            )
            device = fleet.device(client)
            times.append(duration_s(device, costs.work(job), device.mean_load))
        yield min(times) + reply_s(client)
