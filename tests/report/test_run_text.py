from typing import Any

import pytest

from fedsim.report.run_text import PASSED, run_sentence, run_text
from tests.report import conftest

SPENT = "After 3 rounds, 1 min 40 s of simulated time and 4 kB fedavg has"


def summary(**changes: Any) -> dict[str, Any]:
    nothing = {"personal_mean": None, "personal_worst_decile": None, "global": None}
    return {
        "algorithm": "fedavg",
        "rounds": 3,
        "simulated_s": 100.0,
        "bytes_up": 1000,
        "bytes_down": 2000,
        "data_up": 1000,
        "data_down": 0,
        "accuracy": nothing | changes.pop("accuracy", {}),
        "loss": nothing | changes.pop("loss", {}),
        "finite": True,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {
                "accuracy": {"personal_mean": 0.888, "personal_worst_decile": 0.708, "global": 0.9},
                "loss": {"personal_mean": 0.5},
            },
            "a mean accuracy of 88.8 % over clients, 70.8 % over the worst 10 % of them",
        ),
        (
            {"accuracy": {"global": 0.9}, "loss": {"personal_mean": 0.5}},
            "an accuracy of 90.0 % on the global test set",
        ),
        ({"loss": {"personal_mean": 0.012345, "global": 1}}, "a mean loss of 0.0123 over clients"),
        ({"loss": {"global": 0.5}}, "a loss of 0.5 on the global test set"),
        ({}, "not been measured"),
        ({"finite": False}, "not been measured; a model, or a loss, is not finite"),
        ({"finite": False, "divergence": "so"}, "not been measured; a model, or a loss, is not finite"),
        ({"divergence": "2 of 3 replies"}, "not been measured; it has diverged"),
    ],
)
def test_a_run_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    assert run_sentence(summary(**changes)) == f"{SPENT} {words}."


def test_over_sockets_time_is_real() -> None:
    sentence = run_sentence(summary(rounds=1, simulated_s=2.0), PASSED)
    assert sentence.startswith("After 1 round, 2 s of real time and 4 kB fedavg")


def test_a_run_that_has_diverged_says_so_in_its_text() -> None:
    run = conftest.summary("fedavg", stopped_by=None, rejected_by_reason={})
    assert "diverged" not in run_text(run)
    assert "  diverged    2 of 3 replies" in run_text(run | {"divergence": "2 of 3 replies"}).splitlines()
