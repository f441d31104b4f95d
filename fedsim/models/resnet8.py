"""Fed-ET's ResNet-8: 64-128-256-512 channels, one basic block each, without normalisation.

Despite its name the net has ten layers with weights: this form has the size in the paper's table
(specification 7.4, D-003-07). With ``representation = {}`` the head is the paper's.
"""

from fedsim.models.base import ModelPlugin, Net
from fedsim.models.residual import Norm, ResidualConfig, build_residual
from fedsim.task import Task


class ResNet8Config(ResidualConfig):
    """Settings of the model."""

    norm: Norm = "none"
    """Normalisation after each convolution: `batch`, `group` (of 32 groups, or fewer in a narrow net) or
    `none`, as in the paper, which may need a smaller learning rate."""


class ResNet8(ModelPlugin[ResNet8Config]):
    """4 892 352 parameters below the head for three channels."""

    Config = ResNet8Config

    def build(self, task: Task) -> Net:
        """Return a net for images of 8 pixels or more."""
        return build_residual(self, self.config, 1, task)


PLUGIN = ResNet8
