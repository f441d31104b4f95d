"""A validation finds an error that was put into the model, and none where there is none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.engine import compute_context, cost
from fedsim.errors import OutputError
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import run
from fedsim.scenario import Plan, load_scenario
from fedsim.studies import validation_runs
from fedsim.studies.validation_runs import validate, validation_place
from tests.runtime.sockets.emulating import emulated

SCENARIO: dict[str, Any] = {
    "run": {"name": "held", "rounds": 3},
    "data": {"name": "digits", "limit": 200, "global_test": 0.1},
    "models": {"linear": {}},
    "network": {"model": "fluid"},
    "evaluation": {"every": 3},
    "engine": {"workers": 1},
    "server": {"up": "200 kbit/s", "down": "200 kbit/s"},
    "fleet": [
        {
            "count": 4,
            "device": "high",
            "overhead": "600 ms",
            "latency": "10 ms",
            "up": "100 kbit/s",
            "down": "100 kbit/s",
        }
    ],
}
"""A round takes a good second, of which the host needs next to nothing."""


class Threads:
    """In place of processes: client processes in threads."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    @classmethod
    def with_children(cls, plan: Any, processes: int, speed_up: float | None) -> "Threads":
        assert speed_up == 1
        return cls(plan)

    def __call__(self, parts: Parts, *, complete: Any, trace: Any, log: Any, **observers: Any) -> Any:
        def make() -> Parts:
            return Plan.of(load_scenario(SCENARIO), "held").parts

        common = {name: observers[name] for name in ("watch", "observe") if name in observers}
        result, world = emulated(make, ["0-1", "2-3"], 1.0, trace=trace, log=log, **common)
        assert world.errors == []
        complete(result)
        return result


def longer_computing(patch: pytest.MonkeyPatch) -> None:
    real = cost.duration_s
    for module in (cost, compute_context):  # of clients one by one, and of many together
        patch.setattr(module, "duration_s", lambda *arguments: 1.1 * real(*arguments))


def faster_links(patch: pytest.MonkeyPatch) -> None:
    real = Parts.links

    def links(self: Parts) -> Any:
        found = real(self)
        up, down = (
            np.array([1.1 * rates[client] for client in range(len(self.fleet))])
            for rates in (found.up_bps, found.down_bps)
        )
        return replace(
            found,
            up_bps=up,
            down_bps=down,
            server_up_bps=1.1 * found.server_up_bps,
            server_down_bps=1.1 * found.server_down_bps,
        )

    patch.setattr(Parts, "links", links)


def nothing(patch: pytest.MonkeyPatch) -> None: ...


@contextmanager
def unwatched(name: str, rounds: int | None, *, passed: str) -> Iterator[Any]:
    yield lambda row: None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "verdict"),
    [(nothing, "agrees"), (longer_computing, "disagrees"), (faster_links, "disagrees")],
)
def test_an_error_of_a_tenth_in_the_simulation_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planted(*arguments: Any, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            return run(*arguments, **options)

    for module in ("emulate", "join"):
        monkeypatch.setattr(f"fedsim.runtime.sockets.{module}.warm_up", lambda parts: None)
    monkeypatch.setattr(validation_runs, "run", planted)
    monkeypatch.setattr(validation_runs, "ServerProcess", Threads)
    (found,) = validate(
        [load_scenario(SCENARIO)],
        tmp_path / "there",
        speed_up=1.0,
        processes=2,
        watching=unwatched,
        tell=lambda line: None,
    )
    if found.is_late:
        pytest.skip(f"this host is busy: it was late with {found.late:.0%} of the dispatches")
    assert found.verdict() == verdict, list(found.disagreements())
    assert found.num_bytes[0] == found.num_bytes[1]
    assert found.has_same_models
    assert (found.error < 0) == (plant is longer_computing) or plant is nothing


def test_each_validation_has_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario(SCENARIO)
    first = validation_place(scenario)
    assert first == Path("runs/held/validation")
    first.mkdir(parents=True)
    second = validation_place(scenario)
    assert second.parent == first.parent
    assert second != first


def test_an_occupied_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(OutputError, match="exists already: choose another place for the validation"):
        validate(
            [load_scenario(SCENARIO)],
            tmp_path,
            speed_up=1.0,
            processes=2,
            watching=unwatched,
            tell=lambda line: None,
        )
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
