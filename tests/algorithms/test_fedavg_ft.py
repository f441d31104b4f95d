"""FedAvg and fine-tuning: the specification's sanity checks (5.A.4)."""

from typing import Any

import pytest

SCALARS = 64 * 16 + 16 + 16 * 10 + 10
UP_AND_DOWN = 2 * 4 * 3
"""Frames of FedAvg's three rounds with four clients."""


def _digests(seen: dict[int, Any], name: str) -> list[bytes]:
    return [seen[client][name].digest() for client in sorted(seen)]


def test_no_pass_equals_fedavg_exactly(world: Any) -> None:
    plain, tuned = world.algorithm("fedavg"), world.algorithm("fedavg_ft", finetune_epochs=0)
    seen, its = world.watched(plain), world.watched(tuned)
    first, second = world.run(plain), world.run(tuned)
    assert _digests(its, "personal") == _digests(its, "global") == _digests(seen, "global")
    assert second.final.personal.tolist() == first.final.personal.tolist()
    assert second.final.losses.tolist() == first.final.losses.tolist()
    assert second.final.global_ == first.final.global_
    assert second.final.others == {"untuned": first.final.mean}


@pytest.mark.parametrize("passes", [3, "chosen"])
def test_fine_tuning_leaves_the_servers_model_alone_and_reports_both(passes: Any, world: Any) -> None:
    plain, tuned = world.algorithm("fedavg"), world.algorithm("fedavg_ft", finetune_epochs=passes)
    seen, its = world.watched(plain), world.watched(tuned)
    first, second = world.run(plain), world.run(tuned)
    assert _digests(its, "global") == _digests(its, "untuned") == _digests(seen, "global")
    assert len(set(_digests(its, "personal"))) > 1
    assert [row.accuracy.mean for row in second.rounds[:3]] == [row.accuracy.mean for row in first.rounds]
    assert all(not row.accuracy.others for row in second.rounds[:3])
    assert second.final.others == {"untuned": first.final.mean}
    assert second.final.mean != first.final.mean
    assert second.final.global_ == first.final.global_


def test_the_final_frame_goes_to_everyone_and_counts(world: Any) -> None:
    result = world.run(world.algorithm("fedavg_ft"), clients_per_round=1)
    last = result.rounds[-1]
    assert (last.round, last.asked, last.merged) == (4, 4, 4)
    assert last.traffic.parameters_down == 4 * SCALARS
    assert 4 * 4 * SCALARS < last.traffic.bytes_down < 4 * (4 * SCALARS + 600)
    assert (last.traffic.frames_down, last.traffic.frames_up, last.traffic.bytes_up) == (4, 0, 0)


def test_those_who_were_never_selected_are_tuned_too(world: Any) -> None:
    algorithm = world.algorithm("fedavg_ft", finetune_epochs=2)
    seen = world.watched(algorithm)
    result = world.run(algorithm, clients_per_round=1, rounds=1)
    assert sorted(result.by_client["asked"].tolist()) == [1, 1, 1, 2]
    assert all(one["personal"].digest() != one["global"].digest() for one in seen.values())


def test_a_client_without_training_samples_keeps_the_global_model(world: Any) -> None:
    data = world.data()
    held = [data.indices(client, "train") for client in range(3)]
    data = world.holding(data, "train", [*held, []])
    algorithm = world.algorithm("fedavg_ft", finetune_epochs=2)
    seen = world.watched(algorithm)
    tuned, plain = world.run(algorithm, data=data), world.run(world.algorithm("fedavg"), data=data)
    assert list(seen[3]) == ["global"]
    assert tuned.final.personal[3] == plain.final.personal[3]
    assert tuned.by_client["asked"].tolist() == [4, 4, 4, 0]


def test_a_client_that_the_last_frame_does_not_reach_keeps_the_global_model(world: Any) -> None:
    def last_to_first(parcel: Any, ordinal: int) -> bool:
        return ordinal >= UP_AND_DOWN and bool(parcel.receiver == 0)

    algorithm = world.algorithm("fedavg_ft", finetune_epochs=2)
    seen = world.watched(algorithm)
    result = world.run(algorithm, lost=last_to_first, client_timeout_s=60.0)
    assert ["personal" in seen[client] for client in range(4)] == [False, True, True, True]
    assert result.rounds[-1].dropped == 1
    # Both means are over all clients.
    plain = world.run(world.algorithm("fedavg"))
    assert result.final.others == {"untuned": plain.final.mean}
    assert result.rounds[-1].traffic.parameters_down == 4 * SCALARS  # it was sent
