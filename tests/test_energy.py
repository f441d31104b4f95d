"""What the example of energy comes to: its shares, and its carbon by rounds and clients a round."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.report.energy import energy_of
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

SCENARIO = Path(__file__).parents[1] / "scenarios" / "energy.toml"


def energy(*overrides: str) -> dict[str, float]:
    parts = build(load_scenario(SCENARIO, ["fleet.0.count=300", *overrides]))
    found = energy_of(parts, run(parts))
    assert found is not None
    return {name: value for name, value in found.summary().items() if value is not None}


def carbon_g(rounds: int, clients: int) -> float:
    return energy(f"run.rounds={rounds}", f"participation.clients_per_round={clients}")["carbon_g"]


def test_shares_are_near_those_of_a_large_deployment() -> None:
    # Green FL: 46 to 50, 22 to 24 and 27 to 29 % for computing, download and upload, of the carbon, to which
    # the networks' own energy belongs; here it is the phones' energy alone.
    total = energy("run.rounds=10")
    shares = [total[part] / total["clients_j"] for part in ("compute_j", "receive_j", "transmit_j")]
    assert shares == pytest.approx([0.48, 0.23, 0.28], abs=0.1)


@pytest.mark.slow
def test_carbon_is_linear_in_rounds_times_clients_a_round() -> None:
    work, carbon = np.array(
        [
            (rounds * clients, carbon_g(rounds, clients))
            for rounds in (5, 10, 20)
            for clients in (25, 50, 100, 200)
        ]
    ).T
    explained = np.corrcoef(work, carbon)[0, 1] ** 2
    assert explained >= 0.95
