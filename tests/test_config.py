"""Settings records: what their fields are described by."""

from typing import Annotated, Generic, TypeVar

from pydantic import Field

from fedsim.config import Config

T = TypeVar("T")


class Plain(Config):
    """Settings."""

    first: int = 1
    """The first.

    In two paragraphs.
    """
    second: Annotated[float, Field(ge=0, description="said by itself")] = 0.0
    """Not taken."""
    third: str | None = Field(None, validate_default=True)
    """The third."""
    fourth: int = 4


class Longer(Plain):
    """More settings."""

    fourth: int = 5
    """Only here."""


class Of(Config, Generic[T]):
    """Settings of something."""

    item: T
    """What it is of."""

    class Inner(Config):
        """Settings within settings."""

        depth: int = 2
        """How deep."""


def described(config: type[Config]) -> dict[str, str | None]:
    return {name: field.description for name, field in config.model_fields.items()}


def test_the_string_below_a_field_describes_it() -> None:
    texts = {
        "first": "The first.\n\nIn two paragraphs.",
        "second": "said by itself",
        "third": "The third.",
        "fourth": None,
    }
    assert described(Plain) == texts
    assert described(Longer) == texts | {"fourth": "Only here."}
    assert described(Of.Inner) == {"depth": "How deep."}
    assert described(Of[int]) == {"item": "What it is of."}


def test_the_schema_says_so_too() -> None:
    properties = Longer.model_json_schema()["properties"]
    assert properties["fourth"]["description"] == "Only here."
    assert Of[int].model_json_schema()["properties"]["item"]["description"] == "What it is of."


def test_without_its_source_a_class_has_no_descriptions() -> None:
    scope = {"Config": Config, "__name__": "nowhere"}
    exec("class Typed(Config):\n    size: int = 3\n    '''How large.'''\n", scope)  # noqa: S102
    typed = scope["Typed"]
    assert isinstance(typed, type)
    assert described(typed) == {"size": None}
    assert typed().size == 3
