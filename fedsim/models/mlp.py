"""Fully connected layers with ReLU, on the flattened sample."""

from torch import nn

from fedsim.models.base import ModelPlugin, Net, dense, refuse_texts
from fedsim.models.output_head import HeadConfig, finish
from fedsim.ranges import Widths
from fedsim.task import Task


class MlpConfig(HeadConfig):
    """Settings of the model."""

    hidden: Widths = (128, 128)
    """Units of each hidden layer, at least one layer; the model without hidden layers is ``linear``."""


class Mlp(ModelPlugin[MlpConfig]):
    """Blocks ``flatten``, ``fc1``, ``fc2``, ...; 26 122 parameters for 64 inputs and 10 outputs."""

    def build(self, task: Task) -> Net:
        """Return a net for samples of any shape, except texts."""
        refuse_texts(self, task)
        widths = (task.num_inputs, *self.config.hidden)
        blocks = {"flatten": nn.Flatten(), **dense(*widths)}
        return finish(blocks, widths[-1], task, self.config)


PLUGIN = Mlp
