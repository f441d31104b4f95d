import pytest
import torch

from fedsim.models.shufflenet import Halving, Unit
from fedsim.torchvision_compat import torchvision_module


@pytest.mark.parametrize("stride", [1, 2])
def test_a_unit_is_torchvisions_but_for_the_biases(stride: int) -> None:
    theirs = torchvision_module("models.shufflenetv2").InvertedResidual(8, 8 * stride, stride).eval()
    ours = (Unit(8) if stride == 1 else Halving(8, 16)).eval()
    names = {"branch": "branch2", "left": "branch1", "right": "branch2"}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for path, module in ours.named_modules():
            branch, _, place = path.partition(".")
            if list(module.parameters(recurse=False)):
                twin = theirs.get_submodule(f"{names[branch]}.{place}")
                module.weight.normal_(generator=generator)
                module.bias.zero_()
                twin.weight.copy_(module.weight)
                if twin.bias is not None:
                    twin.bias.zero_()
        x = torch.rand(2, 8, 5, 6, generator=generator)
        assert torch.allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
