"""LSTM layers that predict the next character of a text.

Embedding 8, LSTM 256 twice, FC N on the last position (McMahan et al., 2017, "Communication-efficient
learning of deep networks from decentralized data"; one to four layers are FedMe's candidates, specification
7.5).
"""

from typing import Annotated

from pydantic import Field

from fedsim.config import Config
from fedsim.models.base import ModelPlugin, Net, vocabulary_of
from fedsim.models.output_head import finish
from fedsim.models.recurrent import Last, reader
from fedsim.ranges import Width
from fedsim.task import Task


class LstmCharsConfig(Config):
    """Settings of the model."""

    layers: Annotated[int, Field(ge=1, le=4)] = 2
    """Number of LSTM layers."""
    embedding: Width = 8
    """Size of the embedding of a character."""
    hidden: Width = 256
    """Units of each layer."""


class LstmChars(ModelPlugin[LstmCharsConfig]):
    """822 570 parameters for 90 characters with two layers."""

    Config = LstmCharsConfig

    def build(self, task: Task) -> Net:
        """Return a net for texts; its outputs are the task's, one for each character."""
        config = self.config
        blocks = reader(vocabulary_of(self, task), config.embedding, config.hidden, config.layers, Last())
        return finish(blocks, config.hidden, task)


PLUGIN = LstmChars
