"""ResNet-18 for small images: 64-128-256-512 channels, two basic blocks each, BatchNorm.

With ``norm = "none"`` and ``representation = {}`` it is Fed-ET's ResNet-18 (specification 7.1 and 7.4).
"""

from fedsim.models.base import ModelPlugin, Net
from fedsim.models.residual import ResidualConfig, build_residual
from fedsim.task import Task


class ResNet18(ModelPlugin[ResidualConfig]):
    """11 172 810 parameters for one channel and 10 classes, 11 173 962 for three; 9 620 buffer values."""

    Config = ResidualConfig

    def build(self, task: Task) -> Net:
        """Return a net for images of 8 pixels or more."""
        return build_residual(self, self.config, 2, task)


PLUGIN = ResNet18
