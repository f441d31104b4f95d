"""Parts of the nets that read texts: an embedding, LSTM layers one by one, one state for the whole text."""

from torch import Tensor, nn


class Lstm(nn.Module):
    """One LSTM layer, its outputs ``[b, length, hidden]`` alone."""

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


class Mean(nn.Module):
    """The mean over all positions, ``[b, length, f]`` to ``[b, f]``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean values."""
        return x.mean(1)


def reader(
    vocabulary: int, embedding: int, hidden: int, layers: int, state: nn.Module
) -> dict[str, nn.Module]:
    """Return the blocks ``embedding``, ``lstm1``, ``lstm2``, ..., ``state``, from tokens to features.

    Args:
        vocabulary: How many different tokens there are.
        embedding: Values that stand for a token.
        hidden: Units of each layer.
        layers: How many.
        state: From ``[b, length, hidden]`` to ``[b, f]``.
    """
    blocks: dict[str, nn.Module] = {"embedding": nn.Embedding(vocabulary, embedding)}
    inputs = embedding
    for i in range(1, layers + 1):
        blocks[f"lstm{i}"] = Lstm(inputs, hidden)
        inputs = hidden
    return blocks | {"state": state}
