"""Random scenarios, by seed, of small nets with odd sizes, whose matrices are seldom aligned."""

from __future__ import annotations

from torch import Tensor, nn

from fedsim.fuzz.dice import Dice, Table
from fedsim.rng import Key


class Activated(nn.Sequential):
    """A fully connected net with another activation than ReLU."""

    def __init__(self, in_features: int, num_classes: int, hidden: int, activation: str) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(in_features, hidden),
            getattr(nn, activation)(),
            nn.Linear(hidden, num_classes),
        )


class Recurrent(nn.Module):
    """An LSTM that reads the rows of an image."""

    def __init__(self, in_features: int, num_classes: int, hidden: int) -> None:
        super().__init__()
        self.width = int(in_features**0.5)
        self.lstm = nn.LSTM(self.width, hidden, batch_first=True)
        self.out = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[b, num_classes]`` of images ``[b, ...]``."""
        states, _ = self.lstm(x.reshape(len(x), self.width, self.width))
        logits: Tensor = self.out(states[:, -1])
        return logits


def odd_scenario(seed: int) -> Table:
    """Return the tables of a seed's scenario: 4 to 13 clients, mostly with equally many samples."""
    dice = Dice(Key.root(seed).child("odd nets"))
    num_clients = dice.whole(4, 13)
    num_samples = num_clients * dice.whole(8, 40) + dice.whole(0, num_clients - 1)
    kind = dice.pick("mlp", "mlp", "mlp", "linear", "Tanh", "GELU", "cnn", "lstm")
    algorithm = dice.pick("fedavg", "fedavg", "fedprox", "fedmd", "local", "ditto")
    if kind in ("cnn", "lstm"):
        num_clients, num_samples = min(num_clients, 5), min(num_samples, 60)
    tables: Table = {
        "run": {"name": f"odd-{seed}", "seed": seed, "rounds": 2},
        "data": {
            "name": "digits",
            "limit": num_samples + (20 if algorithm == "fedmd" else 0),
            "partition": dice.pick("iid", "iid", {"name": "dirichlet_class", "params": {"min_size": 3}}),
            "params": {"shape": "image" if kind == "cnn" else "flat"},
        },
        "models": {"net": _model(dice.child("model"), kind)},
        "algorithm": {"name": algorithm},
        "training": {"lr": 0.1, "batch_size": dice.whole(1, 33), "epochs": dice.whole(1, 2)}
        | dice.some(0.3, momentum=0.9),
        "fleet": [{"count": num_clients, "device": "mid", "model": "net"}],
    }
    if algorithm == "fedmd":
        tables["data"]["public"] = {"size": 20}
    return tables


def _model(dice: Dice, kind: str) -> Table:
    match kind:
        case "mlp":
            widths = [dice.whole(5, 100) for _ in range(dice.whole(1, 3))]
            return {"name": "mlp", "params": {"hidden": widths}}
        case "linear" | "cnn":
            return {"name": kind}
        case "lstm":
            return {"name": "odd_nets.Recurrent", "params": {"hidden": dice.whole(5, 30)}}
        case _:
            params = {"hidden": dice.whole(5, 100), "activation": kind}
            return {"name": "odd_nets.Activated", "params": params}
