"""Fine-tuning on top of any algorithm, whatever its clients hold and its server sends."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.fine_tuning import FineTuning, OptionalFineTuningConfig
from fedsim.algorithms.scaffold import Scaffold, ScaffoldConfig
from fedsim.params import Model
from fedsim.plugins import load
from tests.algorithms.stand_ins import nth


class TunedScaffoldConfig(ScaffoldConfig, OptionalFineTuningConfig):
    """SCAFFOLD, and fine-tuning if it is asked for."""


class TunedScaffold(FineTuning[Any, Any], Scaffold):
    """Clients mirror their controls."""

    Config = TunedScaffoldConfig


def test_it_may_be_left_out(world: Any) -> None:
    plain, left_out = (world.run(kind(kind.Config())) for kind in (Scaffold, TunedScaffold))
    assert (left_out.trace_hash, left_out.model_hash) == (plain.trace_hash, plain.model_hash)


def test_what_clients_mirror_is_settled_before(world: Any) -> None:
    # The last upload of client 2 is lost: it tunes all the same, and its control is that of the second round.
    algorithm = TunedScaffold(TunedScaffoldConfig(finetune_epochs=1))

    def control(client: Any, state: Any) -> tuple[int, bytes]:
        return client.client, state.control["head.bias"].tobytes()

    trained = world.recorded(algorithm, "train", lambda client, *call: control(client, call[-1][0]))
    tuned = world.recorded(algorithm, "local_finetune", lambda client, state, *_: control(client, state))
    result = world.run(algorithm, lost=nth([3], sender=2), client_timeout_s=30.0)
    after = {client: [its for one, its in trained if one == client] for client in range(4)}
    assert dict(tuned) == {client: its[1 if client == 2 else 2] for client, its in after.items()}
    assert all("untuned" in models for models in result.models.values())


COMPOSED = "ditto dsfl feddf fedmd fedper fedprox fml ktpfl ktpfl_w l2sgd local mapper perfed_ckt"


@pytest.mark.parametrize("name", COMPOSED.split())
def test_it_composes_with_algorithms_as_they_are(name: str, world: Any) -> None:
    method: Any = load("fedsim.algorithms", name)

    class Tuned(FineTuning[Any, Any], method):  # type: ignore[misc]
        _passes = 0

    def digest(models: Mapping[str, Model], *names: str) -> bytes:
        return next(models[one] for one in names if one in models).digest()

    config = method.Config(**({"server_steps": 3} if name == "feddf" else {}))
    plain, tuned = (world.run(kind(config), rounds=1) for kind in (method, Tuned))
    for client, models in tuned.models.items():
        measured = digest(plain.models[client], "personal", "global")
        assert digest(models, "personal") == digest(models, "untuned") == measured


def test_the_optimiser_goes_on_over_passes_that_are_chosen(world: Any) -> None:
    # All samples are one mini-batch, so a pass is a step, and its order matters by rounding alone.
    training = {"batch_size": 1000, "lr": 0.01, "momentum": 0.9}

    def models(passes: Any, **changes: Any) -> dict[int, Model]:
        algorithm = world.algorithm("fedavg_ft", finetune_epochs=passes)
        found: dict[int, Model] = world.personal(algorithm, rounds=1, training={**training, **changes})
        return found

    # With so small a rate the last pass is the best for everybody.
    fixed, chosen, kept = models(10), models("chosen"), models("chosen", keep_optimiser=True)
    for client, left in fixed.items():
        assert chosen[client].digest() == kept[client].digest()
        for name, array in left.params.items():
            np.testing.assert_allclose(chosen[client].params[name], array, atol=1e-6)
