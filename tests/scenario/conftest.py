"""A scenario in one call: text into a file, and the file's scenario or its faults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import Fault, ScenarioError
from fedsim.scenario import Scenario, load_scenario

SMALLEST = "[run]\nrounds = 2\n[[fleet]]\ncount = 4\n"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Scenario]:
    """Return a function that loads a text, by default the smallest scenario, with ``more`` put below it."""

    def load_text(more: str = "", *, text: str = SMALLEST, overrides: Any = (), **options: Any) -> Scenario:
        path = tmp_path / "study.toml"
        path.write_text(text + more, "utf-8")
        return load_scenario(path, overrides, **options)

    return load_text


@pytest.fixture
def faults(load: Callable[..., Scenario]) -> Callable[..., dict[str, Fault]]:
    """Return a function that loads a text that must be refused, and gives its faults by path."""

    def faults_of(more: str = "", **options: Any) -> dict[str, Fault]:
        with pytest.raises(ScenarioError) as caught:
            load(more, **options)
        found = {fault.path: fault for fault in caught.value.faults}
        assert len(found) == len(caught.value.faults), "two faults of one place"
        for jargon in ("pydantic", "http", "Input should", "Value error"):
            assert jargon not in str(caught.value)
        return found

    return faults_of
