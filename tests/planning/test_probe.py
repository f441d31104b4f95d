"""Probes have frames and jobs of three sizes, each pair of which comes in nine rounds."""

from itertools import product

import fedsim

SCENARIO = {
    "run": {"name": "probes", "rounds": 9},
    "data": {"name": "digits", "limit": 300},
    "models": {"mlp": {"params": {"hidden": [16]}}},
    "training": {"batch_size": 8},
    "algorithm": {
        "name": "fedsim.planning.probe.Probe",
        "params": {"frame_bytes": [1000, 4000, 9000], "steps": [1, 3, 5]},
    },
    "fleet": [{"count": 2, "device": "high"}],
}


def test_nine_rounds_have_each_pair_of_sizes() -> None:
    result = fedsim.run(SCENARIO)
    rounds = result.rounds.to_pydict()
    # A frame has some 300 bytes beside what it carries; each of two clients has one.
    sizes = {
        way: [round((num_bytes / 2 - 300) / 1000) for num_bytes in rounds[f"data_{way}"]]
        for way in ("down", "up")
    }
    assert set(sizes["down"]) == set(sizes["up"]) == {1, 4, 9}
    assert len(set(zip(sizes["down"], sizes["up"], strict=True))) == 9
    # A step takes as long in each round, so the time of computing tells how many there were.
    shortest = min(rounds["compute_s"])
    steps = [round(seconds / shortest) for seconds in rounds["compute_s"]]
    assert set(steps) == {1, 3, 5}
    assert set(product({1, 4, 9}, {1, 3, 5})) == set(zip(sizes["down"], steps, strict=True))
    assert set(product({1, 4, 9}, {1, 3, 5})) == set(zip(sizes["up"], steps, strict=True))


def test_nothing_is_learned() -> None:
    first, second = (fedsim.run(SCENARIO, overrides={"run.rounds": rounds}) for rounds in (1, 3))
    assert first.summary["model_hash"] == second.summary["model_hash"]
