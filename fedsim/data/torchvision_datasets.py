"""torchvision's data sets, imported beside whatever torch there is."""

from types import ModuleType

from fedsim.torchvision_compat import torchvision_module


def torchvision_datasets() -> ModuleType:
    """Return ``torchvision.datasets``.

    Raises:
        DataError: torchvision is not installed, or does not fit the installed torch.
    """
    return torchvision_module("datasets")
