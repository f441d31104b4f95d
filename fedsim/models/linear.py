"""One linear layer on the flattened sample: softmax regression, or linear regression with one output."""

from torch import nn

from fedsim.config import Config
from fedsim.models.base import ModelPlugin, Net, named, refuse_texts
from fedsim.task import Task


class Linear(ModelPlugin[Config]):
    """One layer; the features are the values of the sample."""

    def build(self, task: Task) -> Net:
        """Return a net with ``(inputs + 1) * outputs`` parameters."""
        refuse_texts(self, task)
        return Net(named(flatten=nn.Flatten()), nn.Linear(task.num_inputs, task.num_outputs))


PLUGIN = Linear
