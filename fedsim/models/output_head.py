"""The last part of a net: one linear layer, or a representation module of the same shape in every net.

In Fed-ET (Cho et al., 2022, "Heterogeneous ensemble knowledge transfer for training large models in federated
learning") nets of different bodies share the shape of their last layers, which the server averages across
all of them. The paper does not give that shape; this one reproduces the sizes of all its nets (specification
7.4).

In MOON (Li et al., 2021, "Model-contrastive federated learning") a projection head stands before the last
layer, and its outputs are what the method compares. It is the last block of the body, so these are the net's
features.
"""

from torch import nn

from fedsim.config import Config
from fedsim.models.base import Net, dense, named
from fedsim.ranges import Width, Widths
from fedsim.task import Task


class Representation(Config):
    """Shape of the shared module; all nets of a run that share it need the same settings."""

    width: Width = 512
    """Input features of the module; a body with another number of them gets an adapter, a layer with ReLU."""
    hidden: Widths = (512, 128)
    """Units of each hidden layer."""


class HeadConfig(Config):
    """Settings of the end of a net."""

    projection: Width | None = None
    """Outputs of a projection head: two linear layers, the first as wide as its input, with ReLU between them
    (MOON: 256); without it, none."""
    representation: Representation | None = None
    """A shared representation module as the head, `{}` for the default shape; without it, a linear layer."""


def finish(blocks: dict[str, nn.Module], features: int, task: Task, config: HeadConfig | None = None) -> Net:
    """Return a net of a body, whose output is ``[b, features]``, and a head."""
    config = config or HeadConfig()
    if (width := config.projection) is not None:
        hidden, out = nn.Linear(features, features), nn.Linear(features, width)
        blocks, features = blocks | {"projection": named(hidden=hidden, relu=nn.ReLU(), out=out)}, width
    if (representation := config.representation) is None:
        return Net(named(**blocks), nn.Linear(features, task.num_outputs))
    if features != representation.width:
        adapter = named(linear=nn.Linear(features, representation.width), relu=nn.ReLU())
        blocks = blocks | {"adapter": adapter}
    widths = (representation.width, *representation.hidden)
    head = named(**dense(*widths), out=nn.Linear(widths[-1], task.num_outputs))
    return Net(named(**blocks), head)
