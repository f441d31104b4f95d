"""Reading the items of a map-style data set, each as arrays, and all alike.

An item is (x, y), or (x, y, user). x is a tensor or an array of floats, taken as it is; of bytes, or a Pillow
image, scaled from 0..255 to [0, 1], an image with its channels first; or of whole numbers, the tokens of a
text. y is a whole number, a class, or a float, the target of a regression. Each item is read once, in order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.data.base import Dataset, Indices, Labels, Samples
from fedsim.data.file_readers import scaled
from fedsim.data.numbering import numbered
from fedsim.errors import DataError
from fedsim.quoting import with_type
from fedsim.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What a data set gives.

    Attributes:
        x: (n, *input_shape), float32, or int64 for tokens.
        y: (n,), int64, or float32 for targets.
        users: int64 (n,); None where items are (x, y).
    """

    x: Samples
    y: Labels
    users: Indices | None


def read_items(dataset: Any, name: str) -> Items:
    """Return all items of a map-style data set."""
    import torch  # which takes seconds, and a list of data sets needs none

    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(dataset, type):
        raise DataError(
            f"{name} is {type(dataset).__name__}, and no map-style data set: it needs __len__ and __getitem__"
        )
    before = torch.get_rng_state()
    xs: list[NDArray[Any]] = []
    ys: list[NDArray[Any]] = []
    users: list[list[Any]] = []
    for number, (x, y, *user) in enumerate(_read(dataset, name)):
        for what, array, others in (("x", x, xs), ("y", y, ys)):
            if others and (array.dtype, array.shape) != (others[0].dtype, others[0].shape):
                raise DataError(
                    f"item {number} of {name} is unlike item 0: its {what} is {form_of(array)}, and not "
                    f"{form_of(others[0])}; bring all items to one shape and type"
                )
        if len(user) != len(users[0] if users else user):
            raise DataError(
                f"item {number} of {name} has {2 + len(user)} parts, but item 0 {2 + len(users[0])}"
            )
        xs.append(x)
        ys.append(y)
        users.append(user)
    if not xs:
        raise DataError(f"{name} has no items")
    if not torch.equal(before, torch.get_rng_state()):
        raise DataError(
            f"items of {name} are drawn from torch's global generator, so they differ from run to run: leave "
            "random transformations out"
        )
    owners = numbered(user[0] for user in users)[0] if users[0] else None
    return Items(np.stack(xs), np.array(ys), owners)


def _read(dataset: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """Yield x and y of each item as arrays, and perhaps its user."""
    for number in range(len(dataset)):
        try:
            item = dataset[number]
        except DataError as error:
            raise DataError(f"item {number} of {name}: {error}") from error
        except Exception as error:
            raise DataError(f"item {number} of {name} cannot be read: {with_type(error)}") from error
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            what = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
            raise DataError(f"item {number} of {name} is {what}, but must be (x, y) or (x, y, user)")
        try:
            yield (_x(item[0]), _y(item[1]), *map(_user, item[2:]))
        except (DataError, TypeError, ValueError) as error:
            raise DataError(f"item {number} of {name}: {error}") from error


def _plain(value: Any) -> NDArray[Any]:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _x(value: Any) -> NDArray[Any]:
    array = _plain(value)
    if hasattr(value, "getbands"):  # a Pillow image
        if value.mode not in ("L", "RGB"):
            raise DataError(f'x is an image of mode {value.mode}: convert it to "L" or "RGB"')
        array = array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)
    if array.dtype == np.uint8:
        return scaled(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind != "f":
        raise DataError(f"x is {form_of(array)}, but must be floats, bytes, whole numbers or a Pillow image")
    numbers = array.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise DataError("x holds a number that is not finite")
    return numbers


def _y(value: Any) -> NDArray[Any]:
    array = _plain(value)
    if array.ndim or array.dtype.kind not in "iuf":
        raise DataError(
            f"y is {form_of(array)}, but must be one whole number (a class) or one float (a target)"
        )
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def _user(value: Any) -> int | str:
    user = value if isinstance(value, str) else _plain(value).item()
    if not isinstance(user, int | str):
        raise DataError(f"its user is {type(user).__name__}, but must be a whole number or a text")
    return user


def form_of(array: NDArray[Any]) -> str:
    """Return what a message calls the type and shape of an array."""
    return f"{array.dtype} {tuple(array.shape)}"


def dataset_of(items: Items, test: Items | None, num_classes: int | None, vocabulary: int | None) -> Dataset:
    """Return a data set of items, and of a test part."""
    x, y = items.x, items.y
    parts = [items] if test is None else [items, test]
    for part in parts:
        for what, array, other in (("x", part.x, x), ("y", part.y, y)):
            if (array.dtype, array.shape[1:]) != (other.dtype, other.shape[1:]):
                problem = f"its {what} is {form_of(array[0])}, but {form_of(other[0])} in the train part"
                raise DataError(problem, setting="test")
    is_text, is_regression = x.dtype == np.int64, y.dtype == np.float32
    if vocabulary is not None and not is_text:
        raise DataError("x is of floats, and only texts have a vocabulary", setting="vocabulary")
    if num_classes is not None and is_regression:
        raise DataError("y is a float, so there are no classes", setting="num_classes")
    if is_text:
        vocabulary = vocabulary or 1 + max(int(part.x.max()) for part in parts)
    if not is_regression:
        num_classes = num_classes or 1 + max(int(part.y.max()) for part in parts)
    task = Task(
        x.shape[1:], num_classes or 1, "regression" if is_regression else "classification", vocabulary or 0
    )
    test_x, test_y = (None, None) if test is None else (test.x, test.y)
    return Dataset(task, x, y, test_x, test_y, users=items.users)
