"""Operations are counted and start values drawn without torch's compiler, and alike with it."""

import subprocess
import sys

import pytest

COUNTED = """
import sys
import torch.nn.functional as F
from fedsim.models import Architecture
from fedsim.models.flops import forward, measure
from fedsim.plugins import load
from fedsim.rng import Key
from fedsim.task import Task

def training(architecture):
    net = architecture.skeleton()
    def step():
        logits = net(torch.empty(4, *task.input_shape, dtype=getattr(torch, task.dtype), device="meta"))
        F.cross_entropy(logits, torch.empty(4, dtype=torch.int64, device="meta")).backward()
        params = list(net.parameters())
        torch._foreach_add_([one.detach() for one in params], [one.grad for one in params])
    return measure(step)

IMAGES, TEXTS = Task((3, 32, 32), 5), Task((6,), 5, vocabulary=9)
NAMES = {"mlp": IMAGES, "cnn": IMAGES, "lenet": IMAGES, "lstm_text": TEXTS, "lstm_chars": TEXTS}
for name, task in NAMES.items():
    plugin = load("fedsim.models", name)
    architecture = Architecture(name, plugin(plugin.Config()), task)
    digest = architecture.initial(Key.root(0)).digest()
    print(name, forward(architecture, 4), training(architecture), digest)
print("torch._dynamo" in sys.modules)
"""


def told(imports: str) -> list[str]:
    process = [sys.executable, "-c", f"import {imports}\n{COUNTED}"]
    return subprocess.run(process, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603


@pytest.mark.slow  # that a check imports no compiler is seen in tests/cli/test_main.py, too
def test_the_compiler_is_not_imported_and_changes_nothing() -> None:
    without, beside = told("torch"), told("torch, torch._dynamo")
    assert (without.pop(), beside.pop()) == ("False", "True")
    assert without == beside
