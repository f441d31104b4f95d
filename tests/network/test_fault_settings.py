"""Settings of faults: each problem is told at its key."""

from typing import Any

import pytest

from fedsim.network.fault_settings import FaultConfig


@pytest.mark.parametrize(
    ("settings", "path", "problem"),
    [
        ({"kind": "loss"}, "probability", "does not say how many frames 'loss' is for"),
        ({"kind": "loss", "probability": 1.5}, "probability", "less than or equal to 1"),
        ({"kind": "partition", "probability": 0.5}, "probability", "for all frames"),
        ({"kind": "delay", "probability": 0.5}, "delay", "does not say how late"),
        ({"kind": "loss", "probability": 0.5, "delay": "1 s"}, "delay", "'loss' has no delay"),
        ({"kind": "partition", "for": "0 s"}, "for", "0"),
        ({"kind": "partition", "at": "-1 s"}, "at", "-1"),
        ({"kind": "partition", "for": "2 h", "every": "1 h"}, "for", "until it begins again"),
        ({"kind": "partition", "every": "1 h"}, "for", "until it begins again"),
        ({"kind": "sign_flip"}, "share", "does not say how many clients attack"),
        ({"kind": "sign_flip", "share": 1.5}, "share", "less than or equal to 1"),
        ({"kind": "scale", "share": 0.5}, "factor", "does not say by which factor"),
        ({"kind": "noise", "share": 0.5}, "deviation", "does not say how large the noise is"),
        ({"kind": "constant", "share": 0.5}, "value", "does not say what attackers send"),
        ({"kind": "loss", "probability": 0.1, "share": 0.5}, "share", "'loss' has no share"),
        ({"kind": "noise", "share": 0.5, "deviation": 1, "at": "1 s"}, "at", "attack in all rounds"),
        ({"kind": "noise", "share": 0.5, "deviation": 1, "every": "1 s"}, "every", "attack in all rounds"),
        ({"kind": "noise", "share": 0.5, "deviation": 1, "for": "1 s"}, "for", "attack in all rounds"),
        ({"kind": "sign_flip", "share": 0.5, "probability": 0.5}, "probability", "always or never"),
        ({"kind": "sign_flip", "share": 0.5, "direction": "up"}, "direction", "not of frames"),
        ({"kind": "slow"}, "factor", "does not say by which factor"),
        ({"kind": "slow", "factor": 1}, "factor", "no factor by which"),
        ({"kind": "loss", "probability": 0.5, "factor": 2}, "factor", "'loss' has no factor"),
        ({"kind": "slow", "factor": 2, "probability": 1e-6}, "probability", "is rare"),
        ({"kind": "slow", "factor": 2, "direction": "up"}, "direction", "'slow' is of clients"),
        ({"kind": "slow", "factor": 2, "every": "1 s"}, "for", "until it begins again"),
        ({"kind": "slow", "factor": 2, "for": "1 ms", "every": "2 ms"}, "every", "that is too often"),
        ({"kind": "slow", "factor": 0.5}, "factor", "no factor by which devices are slow"),
        ({"kind": "crash", "for": "1 s"}, "for", "over at once"),
        ({"kind": "crash", "direction": "up"}, "direction", "'crash' is of clients"),
        ({"kind": "crash", "delay": "1 s"}, "delay", "'crash' has no delay"),
        ({"kind": "crash", "probability": 1e-6}, "probability", "is rare"),
        (
            {"kind": "loss", "probability": 0.5, "keeps_state": False},
            "keeps_state",
            "'loss' leaves clients' states",
        ),
        ({"kind": "flood"}, "kind", "'loss'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], path: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        FaultConfig.model_validate(settings)
    assert raised.value.errors()[0]["loc"] == (path,)  # type: ignore[attr-defined]
