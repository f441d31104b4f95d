"""LSTM layers that classify a text.

Embedding 50, LSTM 256 twice, one state for the whole text, FC N. With ``representation = { width = 256,
hidden = [256, 128] }`` and 30 522 words it has the 2.5 million parameters of Fed-ET's LSTM (Cho et al., 2022,
"Heterogeneous ensemble knowledge transfer for training large models in federated learning"; specification
7.4).
"""

from typing import Annotated, Literal

from pydantic import Field

from fedsim.models.base import ModelPlugin, Net, vocabulary_of
from fedsim.models.output_head import HeadConfig, finish
from fedsim.models.recurrent import MarkedLast, MarkedMean, reader
from fedsim.ranges import Width
from fedsim.task import Task


class LstmTextConfig(HeadConfig):
    """Settings of the model."""

    layers: Annotated[int, Field(ge=1, le=4)] = 2
    """Number of LSTM layers."""
    embedding: Width = 50
    """Size of the embedding of a word."""
    hidden: Width = 256
    """Units of each layer."""
    state: Literal["last", "mean"] = "mean"
    """How the text is summarised: by the output at its last word, or by the mean over all its words. Padding
    (token 0) does not count."""


class LstmText(ModelPlugin[LstmTextConfig]):
    """2 368 342 parameters for 30 522 words and 2 classes."""

    Config = LstmTextConfig

    def build(self, task: Task) -> Net:
        """Return a net for texts."""
        config = self.config
        state = MarkedLast() if config.state == "last" else MarkedMean()
        sizes = (vocabulary_of(self, task), config.embedding, config.hidden, config.layers)
        blocks = reader(*sizes, state, marked=True)
        return finish(blocks, config.hidden, task, config)


PLUGIN = LstmText
