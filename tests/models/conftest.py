from collections.abc import Callable

import pytest

from fedsim.models import Architecture
from fedsim.plugins import load
from fedsim.task import Task


@pytest.fixture(scope="session")
def make() -> Callable[..., Architecture]:
    """An architecture by its name, a task and settings as a scenario would give them."""

    def architecture(name: str, task: Task, **settings: object) -> Architecture:
        plugin = load("fedsim.models", name)
        return Architecture(name, plugin(plugin.Config.model_validate(settings)), task)  # type: ignore[arg-type]

    return architecture
