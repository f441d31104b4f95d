from collections.abc import Callable

from fedsim.models import Architecture
from fedsim.models.dropout import Dropout
from fedsim.task import Task


def test_dropout_comes_before_both_wide_layers(make: Callable[..., Architecture]) -> None:
    net = make("alexnet", Task((1, 28, 28), 10), hidden=16, dropout=0.2).skeleton()
    found = {name: module.p for name, module in net.named_modules() if isinstance(module, Dropout)}
    assert found == {"body.fc1.dropout": 0.2, "body.fc2.dropout": 0.2}
