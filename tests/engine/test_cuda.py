"""What holds on a CUDA device; skipped, saying so, where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.jobs import Fitted
from fedsim.engine.worker_state import Resources
from tests.engine.conftest import Lab


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("label", ["mlp", "norm"])
def test_a_fit_on_cuda_repeats_itself_and_agrees_with_the_cpu(lab: Lab, label: str) -> None:
    job = lab.make_fit(models={"model": lab.start(label)}, num_steps=20)

    def fitted(device: str, workers: int) -> list[Fitted]:
        executor = THREADS(ExecutorConfig(workers=workers))
        executor.open(Resources.of(lab.data, lab.architectures, device))
        try:
            promises = [executor.submit(job, (0, i)) for i in range(4)]
            return [executor.wait(promise) for promise in promises]
        finally:
            executor.close()

    (on_cpu, *_), one, two = fitted("cpu", 1), fitted("cuda", 1), fitted("cuda", 2)
    assert len({result.model.digest() for result in (*one, *two)}) == 1
    for tree, other in (
        (on_cpu.model.params, one[0].model.params),
        (on_cpu.model.buffers, one[0].model.buffers),
    ):
        for name, array in tree.items():
            np.testing.assert_allclose(other[name], array, rtol=1e-4, atol=1e-4)
