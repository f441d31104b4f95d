"""Base of every settings record: frozen, strict, unknown keys refused, each field documented."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from fedsim import toml_writer
from fedsim.quoting import nearest, quoted


class Config(BaseModel):
    """Settings of one part, kept beside their owner.

    Subclasses document each field by a string below it, which ``fedsim schema`` and ``fedsim list`` show. A
    class that only changes the default of an inherited field need not: its words are the base's.
    Quantities with a dimension use the types of :mod:`fedsim.units`.
    """

    # Validators are built when they are first needed: a run needs few of the hundreds of records.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Describe each field by the string below it.

        Pydantic does so too (``use_attribute_docstrings``), but searches all modules for each class. Torch
        has thousands, so this took most of fedsim's start.
        """
        super().__pydantic_init_subclass__(**kwargs)
        texts = documented(cls.__module__).get(cls.__qualname__, {})
        for name, field in cls.__pydantic_fields__.items():
            inherited = (
                base.__pydantic_fields__.get(name) for base in cls.__mro__[1:] if issubclass(base, Config)
            )
            words = (field.description for field in inherited if field is not None and field.description)
            field.description = field.description or texts.get(name) or next(words, None)

    @model_validator(mode="wrap")
    @classmethod
    def _taught(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            lines = [cls._explained(line) for line in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(error.title, lines) from None

    @classmethod
    def _explained(cls, line: ErrorDetails) -> InitErrorDetails:
        """Say of an unknown key which there are, and of a missing one what it means: the class knows both."""
        kind, loc, context = line["type"], line["loc"], line.get("ctx", {})
        names = list(cls.model_fields)
        if kind == "extra_forbidden" and len(loc) == 1:
            mend = nearest(loc[0], names) if names else "leave it out: nothing can be set here"
            context = {"problem": f"no key is called {quoted(str(loc[0]))} here", "mend": mend}
        elif kind == "missing" and loc[1:] == () and loc[0] in names:
            field = cls.model_fields[str(loc[0])]
            meaning = f" ({field.description.rstrip('.').replace('``', '')})" if field.description else ""
            example = f"{field.examples[0]}, say" if field.examples else "..."
            context = {
                "problem": f"it is missing, and has no default{meaning}",
                "mend": f"add {loc[0]} = {example}",
            }
        elif kind not in get_args(ErrorType):  # an error of fedsim's own
            context = {"problem": line["msg"], **context}
        reported = PydanticCustomError(kind, "{problem}", context) if "problem" in context else kind
        return {"type": reported, "loc": loc, "input": line["input"], "ctx": context}


AsTuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""Lets a strict tuple field accept a list, as a TOML array becomes: ``Annotated[tuple[X, ...], AsTuple]``."""


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    if any(left >= right for left, right in pairwise(values)):
        raise ValueError(f"the grid is gone through from low to high: give {values} ascending, each once")
    return values


Ascending = AfterValidator(_ascending)
"""Lets a tuple of numbers be a grid that is tried from low to high."""


def _writable(value: Any) -> Any:
    try:
        toml_writer.value(value)
    except TypeError:
        mend = "give a number, a text in quotation marks, true, false, or a list or a table of these"
        raise fault(f"{quoted(value)} is nothing that a scenario can hold", mend) from None
    return value


Writable = Annotated[Any, AfterValidator(_writable)]
"""Any value that a file of a scenario can hold: one from Python may be anything, one from TOML a date."""


def fault(problem: str, mend: str = "") -> PydanticCustomError:
    """Return an error for a validator to raise, which becomes a fault with this problem and mend."""
    return PydanticCustomError("fedsim", "{problem}", {"problem": problem, "mend": mend})


@cache
def documented(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the strings below annotated names, by the qualified name of their class.

    Classes within functions have none, nor have those of a module whose source is not there.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    return dict(_classes(tree.body, ""))


def _classes(body: Sequence[ast.stmt], above: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield f"{above}{node.name}", _texts(node.body)
            yield from _classes(node.body, f"{above}{node.name}.")


def _texts(body: Sequence[ast.stmt]) -> dict[str, str]:
    texts = {}
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            texts[field.target.id] = inspect.cleandoc(below.value.value)
    return texts
