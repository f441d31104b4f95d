"""The parameters of algorithms as text, and those that one variant has and a related one lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedsim import toml_writer
from fedsim.config import Config
from fedsim.scenario.choices import ALGORITHM, AlgorithmChoice
from fedsim.scenario.schema import Scenario


def params_text(params: Config) -> dict[str, str]:
    """Return the values of parameters as TOML writes them, by name, but those without a value."""
    table = params.model_dump(mode="json", exclude_none=True)
    return {name: toml_writer.value(value) for name, value in table.items()}


def unlike_params(variants: Mapping[str, Scenario]) -> list[str]:
    """Return a remark on each variant that lacks parameters which a parent or a subclass was given.

    A plugin that is a subclass of another one shares its parameters, but not its table in the scenario.
    """
    remarks: dict[str, None] = {}
    for name, scenario in variants.items():
        others = [(other, variant.algorithm) for other, variant in variants.items()]
        compared = {choice.name for _, choice in others}
        for other, given in others:
            remarks |= dict.fromkeys(_remark(name, scenario.algorithm, other, given))
        for given in scenario.algorithms.values():
            if given.name not in compared and _is_derived(scenario.algorithm.name, given.name):
                remarks |= dict.fromkeys(_remark(name, scenario.algorithm, given.name, given))
    return list(remarks)


def _remark(name: str, lacking: AlgorithmChoice, other: str, given: AlgorithmChoice) -> Iterator[str]:
    """Yield a remark if ``given`` sets parameters that ``lacking`` does not set, and has unlike."""
    is_child = _is_derived(lacking.name, given.name)
    if not (is_child or _is_derived(given.name, lacking.name)):
        return
    present, wanted = params_text(lacking.params), params_text(given.params)
    fields = type(given.params).model_fields
    # What is set is meant, even where it is unlike; a default of a class belongs to its method.
    unlike = {
        key: wanted[key]
        for key in type(lacking.params).model_fields
        if key in wanted.keys() & given.params.model_fields_set - lacking.params.model_fields_set
        and getattr(given.params, key) != fields[key].get_default(call_default_factory=True)
        and wanted[key] != present.get(key)
    }
    if not unlike:
        return
    values = ", ".join(
        f"{key} = {present.get(key, 'no value')} ({other}: {text})" for key, text in unlike.items()
    )
    child, parent = (lacking.name, given.name) if is_child else (given.name, lacking.name)
    place = f"[{toml_writer.path('algorithms', lacking.name)}]"
    if lacking.params.model_fields_set:
        place = f"among the parameters of {lacking.name}"
    wished = ", ".join(f"{key} = {text}" for key, text in unlike.items())
    yield (
        f"{name} has {values}: {child} is a subclass of {parent}, but the parameters of one do not apply to "
        f"the other; write {place} {wished} for equal settings, or the present values to keep them"
    )


def _is_derived(child: str, parent: str) -> bool:
    """Whether an algorithm is a subclass of another one, or of a class in that one's file."""
    own, other = ALGORITHM.find(child), ALGORITHM.find(parent)
    if own is other:
        return False
    above = [cls for cls in own.__mro__ if cls in other.__mro__ and cls.__module__ == other.__module__]
    return issubclass(own, other) or (own.__module__ != other.__module__ and bool(above))
