import pytest
import torch

from fedsim.to_device import to_device


def test_on_the_cpu_nothing_is_copied() -> None:
    tensor = torch.arange(3)
    assert to_device(tensor, torch.device("cpu")) is tensor


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_cuda_the_work_that_follows_finds_the_copy() -> None:
    tensors = [torch.full((1000,), number) for number in range(100)]
    sums = [to_device(tensor, torch.device("cuda")).sum() for tensor in tensors]
    assert torch.stack(sums).tolist() == [1000 * number for number in range(100)]
