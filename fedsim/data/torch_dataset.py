"""Any map-style ``torch.utils.data.Dataset``, by dotted path or from Python.

The path is that of a class, of a function that returns a data set, or of a data set.

What an item may be :mod:`fedsim.data.items` says; (x, y, user) gives a natural partition. All are read once,
in order, when the data set is loaded, so transformations that draw at random are refused.

From Python the data set itself may stand in place of its path. A scenario then has a name for it, made from
its content, by which the same process finds it again, as it was then; another process needs a path.
"""

import hashlib
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fedsim.config import Config, Writable, fault
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext, blamed
from fedsim.data.items import Items, dataset_of, read_items
from fedsim.errors import DataError
from fedsim.plugins import at
from fedsim.quoting import quoted, with_type
from fedsim.ranges import Classes, Tokens

_GIVEN: dict[str, tuple[object, Items]] = {}
"""Data sets from Python and what they gave, by the names that scenarios have for them."""


def _name_of_given(value: Any) -> Any:
    """Return the name of a data set, and keep its items under it; paths stay as they are."""
    if isinstance(value, str):
        return value
    for name, (dataset, _) in _GIVEN.items():
        if dataset is value:
            return name
    try:
        items = read_items(value, type(value).__name__)
    except DataError as error:
        raise fault(str(error)) from error
    digest = hashlib.blake2b(digest_size=8)
    for array in (items.x, items.y, items.users):
        if array is not None:
            digest.update(f"{array.dtype}{array.shape};".encode() + array.tobytes())
    name = f"{type(value).__name__} from Python, {digest.hexdigest()}"
    _GIVEN[name] = value, items
    return name


Source = Annotated[str, BeforeValidator(_name_of_given)]


class TorchDatasetConfig(Config):
    """Settings of a data set of torch."""

    dataset: Source = Field(min_length=1, examples=["'my_lab.data.Speech'"])
    """Dotted path of a class of map-style data sets, of a function that returns one, or of one; from Python
    also the data set itself."""
    params: dict[str, Writable] = Field(default_factory=dict)
    """Arguments of the class or the function."""
    test: Source | None = None
    """The same for a test part."""
    test_params: dict[str, Writable] = Field(default_factory=dict)
    """Arguments for the test part."""
    num_classes: Classes | None = None
    """Classes; without it, one more than the largest label."""
    vocabulary: Tokens | None = None
    """Different tokens, where items are texts; without it, one more than the largest token."""


class TorchDataset(DatasetPlugin[TorchDatasetConfig]):
    """All items, in their order."""

    origin = ("dataset", "params")

    def load(self, context: LoadContext) -> Dataset:
        """Return the items as arrays."""
        config = self.config
        with blamed("dataset"):
            items = _items(config.dataset, config.params)
        test = None
        if config.test is not None:
            with blamed("test"):
                test = _items(config.test, config.test_params)
        return dataset_of(items, test, config.num_classes, config.vocabulary)


def _items(path: str, params: dict[str, Any]) -> Items:
    """Return the items of a data set given from Python, or at a dotted path."""
    if path in _GIVEN:
        if params:
            raise DataError("a data set that is given from Python takes no params: leave them out")
        return _GIVEN[path][1]
    if " from Python, " in path:
        raise DataError(f"{quoted(path)} was given in another process of Python: name it by a dotted path")
    try:
        target = at(path)
        dataset = target(**params) if callable(target) else target
    except Exception as error:
        raise DataError(f"{path} cannot be made: {with_type(error)}") from error
    if dataset is None:
        raise DataError(
            f"{quoted(path)} leads to nothing: write the dotted path of a class, a function or a data set in "
            "a module that Python can import (PYTHONPATH)"
        )
    return read_items(dataset, path)


PLUGIN = TorchDataset
