"""Every plain number of a scenario has a range, at both ends."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from fedsim import ranges
from fedsim.models.architecture import MAX_PARAMS
from fedsim.plugin_choice import Kind
from fedsim.scenario import choices, json_schema
from fedsim.wire.contents import DEFAULT

LEAST, MOST = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}


def numbers(schema: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield where a JSON schema allows any of many numbers, and what it says there."""
    if isinstance(schema, list):
        for place, inner in enumerate(schema):
            yield from numbers(inner, f"{path}/{place}")
    elif isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and not {"enum", "const"} & schema.keys():
            yield path, schema
        for name, inner in schema.items():
            if name not in ("default", "examples"):
                yield from numbers(inner, f"{path}/{name}")


def unbounded(schema: Any) -> list[str]:
    return [path for path, said in numbers(schema) if not (LEAST & said.keys() and MOST & said.keys())]


KINDS = [kind for kind in vars(choices).values() if isinstance(kind, Kind)]


def test_every_number_of_a_scenario_has_both_ends_of_a_range_in_its_schema() -> None:
    schema = json_schema()
    assert unbounded(schema) == []
    paths = [path for path, _ in numbers(schema)]
    assert len(paths) > 150
    assert any(path.endswith("/TrainingConfig/properties/lr") for path in paths)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
def test_every_number_of_every_plugin_has_both_ends_of_a_range(kind: Kind[Any]) -> None:
    for name in kind.names:
        assert unbounded(kind.find(name).Config.model_json_schema()) == [], name


@pytest.mark.parametrize("annotation", [int, float, int | None, tuple[int, ...], dict[str, float]])
def test_a_number_without_a_range_would_be_found(annotation: Any) -> None:
    class Settings(BaseModel):
        few: annotation
        share: ranges.Share = 0.5

    assert [path.split("/")[2] for path in unbounded(Settings.model_json_schema())] == ["few"]


def test_ends_are_what_a_type_takes() -> None:
    assert ranges.ends(ranges.Seed) == (0, 2**63 - 1)
    least, most = ranges.ends(ranges.Workers)
    adapter = TypeAdapter[int](ranges.Workers)
    assert (adapter.validate_python(least), adapter.validate_python(most)) == (1, 1024)
    for beyond in (least - 1, most + 1):
        with pytest.raises(ValidationError):
            adapter.validate_python(beyond)


def test_the_largest_model_fits_into_a_frame() -> None:
    assert 4 * MAX_PARAMS + DEFAULT.envelope_bytes < DEFAULT.frame_bytes
