import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.report.record_run import record
from fedsim.report.summary import ineligible, ineligible_line
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.scenario import Plan
from tests.conftest import there


def mixed(parts: Parts, roomy: int = 1, tiny: int = 3) -> Parts:
    """Return parts whose last clients have 1 kB of memory, where a job needs 14.9 kB."""
    groups = [{"count": roomy}, {"count": tiny, "memory": "1 kB"}]
    configs = [GroupConfig.model_validate(group) for group in groups]
    return replace(parts, fleet=build_fleet(configs, ServerConfig(), Key.root(0), default_model="linear"))


def test_who_cannot_hold_the_job_is_named(make_parts: Callable[..., Parts]) -> None:
    found = ineligible(mixed(make_parts()))
    assert found == {"count": 3, "clients": [1, 2, 3], "reason": "memory"}
    assert ineligible_line(found, 4) == "3 of 4 clients, too little memory to hold their job: 1, 2, 3"


def test_twenty_are_named_at_most(make_parts: Callable[..., Parts]) -> None:
    many = {"count": 25, "clients": list(range(20)), "reason": "memory"}
    said = there(ineligible_line(many, 30))
    assert said.endswith(", 18, 19 and 5 more")
    parts = make_parts()
    crowd = build_fleet(
        [GroupConfig.model_validate({"count": 25, "memory": "1 kB"})],
        ServerConfig(),
        Key.root(0),
        default_model="linear",
    )
    data = replace(parts.data, num_clients=25)
    assert ineligible(replace(parts, fleet=crowd, data=data)) == many


def test_where_all_can_there_is_nothing_to_say(make_parts: Callable[..., Parts]) -> None:
    found = ineligible(make_parts())
    assert found == {"count": 0, "clients": [], "reason": None}
    assert ineligible_line(found, 4) is None


def test_the_summary_names_them(make_parts: Callable[..., Parts], tmp_path: Path) -> None:
    done = record(Plan("tiny", "fedavg", "", mixed(make_parts(), 2, 2)), tmp_path / "run")
    summary = json.loads((done.folder / "summary.json").read_text())
    assert summary["ineligible"] == {"count": 2, "clients": [2, 3], "reason": "memory"}
    assert summary["participation"]["clients_asked"] == 2
