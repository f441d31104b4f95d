"""Parts of nets for texts: an embedding, single LSTM layers, and one state for the whole text.

If texts are padded to one length, the state has to leave out the padding. A net can be cut after any block,
so each block passes a mark on behind its values, 1 for a token of the text and 0 for padding:
``[b, length, f + 1]``.
"""

import torch
from torch import Tensor, nn

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
