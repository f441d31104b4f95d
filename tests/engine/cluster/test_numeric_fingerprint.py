from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from fedsim.data import FederatedData
from fedsim.engine.cluster.numeric_fingerprint import differences, numeric_fingerprint
from fedsim.engine.worker_state import Resources
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP


def test_it_names_every_architecture_and_is_the_same_again(resources: Resources) -> None:
    found = numeric_fingerprint(resources)
    assert found["torch"] == torch.__version__
    trained = {f"training of {label!r}" for label in resources.architectures}
    # One draws from torch's own generator, which a job may not.
    assert trained - found.keys() == {"training of 'dropout'"}
    assert numeric_fingerprint(resources) == found
    assert differences(found, found) == []


def test_it_is_that_of_one_torch_thread(resources: Resources, two_torch_threads: None) -> None:
    with_two = numeric_fingerprint(resources)
    torch.set_num_threads(1)
    assert numeric_fingerprint(resources) == with_two


def test_other_numbers_are_seen(data: FederatedData, architectures: Mapping[str, Architecture]) -> None:
    mlp = architectures["mlp"]
    wider = replace(mlp, plugin=MLP(MLP.Config(hidden=(5,))))
    here, there = (numeric_fingerprint(Resources.of(data, {"mlp": one}, "cpu")) for one in (mlp, wider))
    assert differences(here, there) == ["training of 'mlp' (other bits)"]


def test_differences_say_what_is_here_and_what_is_there() -> None:
    here = {"torch": "2.6", "instruction set": "AVX512", "training of 'a'": "#1"}
    there = {"torch": "2.7", "instruction set": "AVX512"}
    assert differences(here, there) == ["torch (2.6 here, 2.7 there)", "training of 'a' (other bits)"]
