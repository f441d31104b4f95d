import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any

import pytest

from fedsim.config import Config
from fedsim.errors import ScenarioError
from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.distributions import Distribution, Spread, Values
from fedsim.rng import Key
from fedsim.scenario import load_scenario

PHONE: Any = quantities(speed="1 GFLOP/s", memory="4 GB", up="1 Mbit/s", down="2 Mbit/s", latency="9 ms")


class Derived(PHONE):  # type: ignore[misc]
    colour: str = "red"


class Loose(PHONE):  # type: ignore[misc]
    speed: object = "1 GFLOP/s"


class Plain(PHONE):  # type: ignore[misc]
    up: float | None = None


class UnreadLoad(PHONE):  # type: ignore[misc]
    load: object = "heavy"


class Few(Config):
    speed: Annotated[Distribution, Spread("compute", positive=True)]


class Unread(PHONE):  # type: ignore[misc]
    speed: Annotated[Distribution, Spread("compute", positive=True)] = "1 GFLOP/s"  # type: ignore[assignment]


class Absent(PHONE):  # type: ignore[misc]
    speed: Annotated[Distribution, Spread("compute", positive=True)] | None = None


class Measured(DevicePlugin):
    """A class that draws what its settings leave open."""

    Config = Absent

    def draw(self, num: int, key: Key) -> Mapping[str, float | Values]:
        return {"speed": 1e9, "memory": 4e9, "up": 1e6, "down": 1e6, "latency": 0.0}


def load(
    monkeypatch: pytest.MonkeyPatch, plugin: type[DevicePlugin], place: str = "fleet", **more: Any
) -> Any:
    """Load a scenario whose fleet or server is of a private class, ``lab.phone``."""
    module = ModuleType("lab.phone")
    module.PLUGIN = plugin  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lab", ModuleType("lab"))
    monkeypatch.setitem(sys.modules, "lab.phone", module)
    entry = {"device": "lab.phone", **more}
    tables = (
        {"fleet": [{"count": 1, **entry}]} if place == "fleet" else {"fleet": [{"count": 1}], place: entry}
    )
    return load_scenario({"run": {"rounds": 1}, **tables})


def of(config: Any, base: type[DevicePlugin] = DevicePlugin) -> type[DevicePlugin]:
    return type("Phone", (base,), {"Config": config})


def test_a_private_class_may_have_more_settings_or_draw_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for plugin in (of(PHONE), of(Derived), Measured):
        assert load(monkeypatch, plugin).fleet[0].device == "lab.phone"
    assert load(monkeypatch, of(Absent), speed="2 GFLOP/s").fleet[0].device == "lab.phone"


@pytest.mark.parametrize("more", [{}, {"speed": "2 GFLOP/s", "up": "1 Mbit/s", "memory": "1 GB"}])
@pytest.mark.parametrize(
    ("config", "key", "problem"),
    [
        (Loose, "speed", "annotates speed in its Config with a type of its own"),
        (Plain, "up", "annotates up in its Config with a type of its own"),
        (Few, "memory", "has no memory in its Config"),
    ],
)
def test_a_loose_annotation_is_a_fault_of_the_class(
    monkeypatch: pytest.MonkeyPatch, config: Any, key: str, problem: str, more: dict[str, str]
) -> None:
    for place, path in (("fleet", "fleet.0.device"), ("server", "server.device")):
        with pytest.raises(ScenarioError) as caught:
            load(monkeypatch, of(config), place, **more)
        (fault,) = caught.value.faults
        assert (fault.path, fault.problem) == (path, f"device class 'lab.phone' {problem}")
        assert fault.mend.startswith(f"write Config = quantities({key}=..., ...) in the class")


@pytest.mark.parametrize(("config", "shown"), [(Unread, "'1 GFLOP/s'"), (Absent, "None")])
def test_a_default_that_is_not_validated_is_a_fault_too(
    monkeypatch: pytest.MonkeyPatch, config: Any, shown: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(monkeypatch, of(config))
    (fault,) = caught.value.faults
    said = f"device class 'lab.phone' has speed = {shown} in its Config, which was not read as a quantity"
    assert (fault.path, fault.problem) == ("fleet.0", said)
    assert "quantities(speed=..." in fault.mend


def test_a_load_that_is_none_is_a_fault_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(monkeypatch, of(UnreadLoad))
    (fault,) = caught.value.faults
    said = "device class 'lab.phone' has load = 'heavy' in its Config, which was not read as a load"
    assert (fault.path, fault.problem) == ("fleet.0", said)
