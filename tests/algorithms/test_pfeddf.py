"""pFedDF: the specification's sanity checks (5.C.2)."""

from typing import Any

import pytest

MLP = 64 * 16 + 16 + 16 * 10 + 10
LINEAR = 64 * 10 + 10
MIXED = {"models": ("linear", "mlp"), "rounds": 2}


def _prototypes(seen: dict[int, Any], name: str) -> list[bytes]:
    return [seen[client].get(name, seen[client]["global"]).digest() for client in range(4)]


@pytest.mark.parametrize("passes", [0, 2])
def test_clients_start_from_feddfs_prototypes(passes: int, world: Any) -> None:
    plain = world.algorithm("feddf", server_steps=10)
    tuned = world.algorithm("pfeddf", server_steps=10, finetune_epochs=passes)
    seen, its = world.watched(plain), world.watched(tuned)
    first, second = world.run(plain, **MIXED), world.run(tuned, **MIXED)
    assert _prototypes(its, "untuned") == _prototypes(seen, "personal")
    assert (_prototypes(its, "personal") == _prototypes(seen, "personal")) is (passes == 0)
    assert second.final.others == {**first.final.others, "untuned": first.final.mean}
    assert "prototypes" in first.final.others
    assert (second.final.personal.tolist() == first.final.personal.tolist()) is (passes == 0)
    assert second.final.global_ == first.final.global_


def test_the_final_frame_is_the_prototype_of_the_clients_architecture(world: Any) -> None:
    algorithm = world.algorithm("pfeddf", server_steps=1, finetune_epochs=1)
    last = world.run(algorithm, clients_per_round=1, **MIXED).rounds[-1]
    assert (last.round, last.traffic.parameters_down, last.traffic.parameters_up) == (
        3,
        2 * (MLP + LINEAR),
        0,
    )
