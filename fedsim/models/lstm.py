"""Nets that read texts token by token: an embedding, LSTM layers, and one state for the whole text.

If texts are padded to one length, the state has to leave out the padding. A net can be cut after any block,
so each block passes a mark on behind its values, 1 for a token of the text and 0 for padding:
``[b, length, f + 1]``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fedsim.config import Config
from fedsim.models.base import ModelPlugin, Net, vocabulary_of
from fedsim.models.output_head import HeadConfig, finish
from fedsim.ranges import Width
from fedsim.task import Task

PADDING = 0
"""Token that pads a short text."""


class Lstm(nn.Module):
    """One LSTM layer that gives only its outputs, ``[b, length, f]`` to ``[b, length, hidden]``."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output at each position."""
        outputs: Tensor = self.lstm(x)[0]
        return outputs


class Last(nn.Module):
    """The last position, ``[b, length, f]`` to ``[b, f]``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the values there."""
        return x[:, -1]


class MarkedEmbedding(nn.Embedding):
    """An embedding that marks tokens other than padding, ``[b, length]`` to ``[b, length, f + 1]``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the values of each token, and its mark."""
        values = super().forward(x)
        return torch.cat([values, (x != PADDING).to(values.dtype)[..., None]], -1)


class MarkedLstm(Lstm):
    """An LSTM layer that passes marks on, ``[b, length, f + 1]`` to ``[b, length, hidden + 1]``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the output at each position, and its mark."""
        return torch.cat([super().forward(x[..., :-1]), x[..., -1:]], -1)


class MarkedLast(nn.Module):
    """The last position with a mark, ``[b, length, f + 1]`` to ``[b, f]``; zeros where there is none."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the values there."""
        marks = x[..., -1].detach()
        # Not by cumsum, which has no deterministic implementation on a GPU.
        places = marks * torch.arange(1, marks.shape[1] + 1, device=x.device)
        is_last = marks * (places == places.amax(1, keepdim=True))
        return (x[..., :-1] * is_last[..., None]).sum(1)


class MarkedMean(nn.Module):
    """The mean over positions with a mark, ``[b, length, f + 1]`` to ``[b, f]``; zeros if there is none."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean values."""
        marks = x[..., -1:].detach()
        return (x[..., :-1] * marks).sum(1) / marks.sum(1).clamp(min=1)


def reader(
    vocabulary: int, embedding: int, hidden: int, layers: int, state: nn.Module, *, marked: bool = False
) -> dict[str, nn.Module]:
    """Return the blocks ``embedding``, ``lstm1``, ``lstm2``, ..., ``state``, from tokens to features.

    ``state`` maps ``[b, length, hidden]``, or ``[b, length, hidden + 1]`` with marks, to ``[b, f]``.
    """
    kinds = (MarkedEmbedding, MarkedLstm) if marked else (nn.Embedding, Lstm)
    blocks: dict[str, nn.Module] = {"embedding": kinds[0](vocabulary, embedding)}
    inputs = embedding
    for i in range(1, layers + 1):
        blocks[f"lstm{i}"] = kinds[1](inputs, hidden)
        inputs = hidden
    return blocks | {"state": state}


class LstmCharsConfig(Config):
    """Settings of the model."""

    layers: Annotated[int, Field(ge=1, le=4)] = 2
    """Number of LSTM layers."""
    embedding: Width = 8
    """Size of the embedding of a character."""
    hidden: Width = 256
    """Units of each layer."""


class LstmChars(ModelPlugin[LstmCharsConfig]):
    """LSTM layers that predict the next character of a text.

    Embedding 8, LSTM 256 twice, FC N on the last position (McMahan et al., 2017, "Communication-efficient
    learning of deep networks from decentralized data"; one to four layers are FedMe's candidates,
    specification 7.5).
    """

    def build(self, task: Task) -> Net:
        """Return a net for texts; its outputs are the task's, one for each character."""
        config = self.config
        blocks = reader(vocabulary_of(self, task), config.embedding, config.hidden, config.layers, Last())
        return finish(blocks, config.hidden, task)


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
    """LSTM layers that classify a text.

    Embedding 50, LSTM 256 twice, one state for the whole text, FC N. With ``representation = { width = 256,
    hidden = [256, 128] }`` and 30 522 words it has the 2.5 million parameters of Fed-ET's LSTM (Cho et al.,
    2022, "Heterogeneous ensemble knowledge transfer for training large models in federated learning";
    specification 7.4).
    """

    def build(self, task: Task) -> Net:
        """Return a net for texts."""
        config = self.config
        state = MarkedLast() if config.state == "last" else MarkedMean()
        sizes = (vocabulary_of(self, task), config.embedding, config.hidden, config.layers)
        blocks = reader(*sizes, state, marked=True)
        return finish(blocks, config.hidden, task, config)


PLUGINS = {"lstm_chars": LstmChars, "lstm_text": LstmText}
