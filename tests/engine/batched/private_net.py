"""A model plugin of somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsim.models import ModelPlugin, Net
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.task import Task


class Private(ModelPlugin[Any]):
    """A net made by a function."""

    def __init__(self, make: Callable[[], Net]) -> None:
        super().__init__(LINEAR.Config())
        self._make = make

    def build(self, task: Task) -> Net:
        return self._make()
