from typing import Any

import pytest

from fedsim.errors import Fault
from fedsim.scenario import Scenario
from fedsim.scenario.checks import NotValidError, Values

DOCUMENT: dict[str, Any] = {
    "run": {"rounds": 3},
    "fleet": [{"count": 4}, {"count": 5, "up": {"low": 1}}, 7],
    "models": {"a.b": {}},
    "training": 2,
}


def test_a_value_is_the_documents_or_the_default() -> None:
    values = Values(DOCUMENT)
    assert values.at("run", "rounds") == 3
    assert values.at("run", "seed") == 0
    assert values.at("data", "public", "size") == 0
    assert values.at("participation", "clients_per_round") is None
    assert values.at("fleet", 1, "count") == 5


def test_a_whole_scenario_is_a_document_too() -> None:
    values = Values(Scenario.model_validate({"run": {"rounds": 1}, "fleet": [{"count": 2}]}))
    assert (values.at("data", "public", "size"), values.at("fleet", 0, "count")) == (0, 2)
    assert (list(values.names("fleet")), values.names("models")) == ([0], ["mlp"])


@pytest.mark.parametrize(
    "path",
    [
        ("fleet", 1, "up"),
        ("fleet", 1, "up", "low"),
        ("fleet", 2, "count"),
        ("fleet", 3, "count"),
        ("fleet", "first"),
        ("training", "lr"),
        ("run",),
        ("server", "nothing"),
    ],
)
def test_nothing_is_said_of_what_has_a_fault_or_is_not_there(path: tuple[str | int, ...]) -> None:
    with pytest.raises(NotValidError):
        Values(DOCUMENT, [Fault("fleet.1.up.low", ""), Fault("run.name", "")]).at(*path)


def test_a_fault_says_nothing_of_its_neighbours() -> None:
    values = Values(DOCUMENT, [Fault("fleet.1", ""), Fault("fleet.10.count", ""), Fault("run.round", "")])
    assert (values.at("fleet", 1, "count"), values.at("run", "rounds")) == (5, 3)
    with pytest.raises(NotValidError):
        Values(DOCUMENT, [Fault('models."a.b".params', "")]).at("models", "a.b")


def test_names_are_known_whatever_is_below_them() -> None:
    values = Values(DOCUMENT, [Fault("fleet.1.count", ""), Fault("models", "")])
    assert list(values.names("fleet")) == [0, 1, 2]
    assert values.names("algorithms") == ()
    with pytest.raises(NotValidError):
        values.names("models")


def test_given_are_valid_values_other_than_the_default() -> None:
    values = Values(
        DOCUMENT | {"data": {"global_test": 0.0, "public": {"size": 5, "users": 0.2}}},
        [Fault("data.public.users", "")],
    )
    paths = [
        ("data", "global_test"),
        ("data", "public", "size"),
        ("data", "public", "users"),
        ("run", "seed"),
    ]
    assert list(values.given(*paths)) == [(("data", "public", "size"), 5)]
