"""What the keys of a study must say about each other, whatever else is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from fedsim import toml
from fedsim.errors import Fault
from fedsim.quoting import nearest, quoted
from fedsim.report import number_format
from fedsim.scenario.load import SPELLING, keys_of
from fedsim.scenario.validation_messages import shown
from fedsim.studies.intervals import MIN_BOOTSTRAP_SEEDS

MAX_RUNS = 10_000
"""Runs of a study."""

_NAMED = 'write algorithm = "fedavg", say, in a [[variant]], one for each algorithm'

ELSEWHERE = {
    "run.seed": "write {seeds} at the top of the study instead",
    "algorithm": _NAMED,
    "algorithm.name": _NAMED,
    "algorithm.params": "write params = {{ mu = 0.1 }}, say, in a [[variant]]",
}
"""Values that another key of a study gives, and what to write instead."""


def between(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults between the keys of a study."""
    variants, grid = document.get("variant"), table_of(document.get("grid"))
    tune = dict(table_of(document.get("tune")))
    of_trials = tune.pop("seeds", ())
    run = table_of(table_of(document.get("base")).get("run"))
    seeds = document.get("seeds", [run.get("seed", 0)])
    for seed in of_trials if isinstance(of_trials, list) and isinstance(seeds, list) else ():
        if seed in seeds:
            problem = (
                f"{seed} is a seed of the study too, and its runs would be judged by what was tuned to it"
            )
            yield Fault("tune.seeds", problem, "give other seeds")
    if "tune" in document and isinstance(document["tune"], dict) and not tune:
        yield Fault("tune", "nothing is tuned", 'add values to try, such as "training.lr" = [0.01, 0.1]')
    varied = [*(("grid", path) for path in grid), *(("tune", path) for path in tune)]
    for number, (table, path) in enumerate(varied):
        yield from _given_too(
            toml.path(table, path), [entry for entry in varied[:number] if _hides(path, entry[1])]
        )
    called: dict[Any, int] = {}
    for number, variant in enumerate(variants if isinstance(variants, list) else []):
        if not isinstance(variant, dict):
            continue
        name = variant.get("name", variant.get("algorithm"))
        if isinstance(name, str) and called.setdefault(name, number) != number:
            problem = f"{quoted(name)} is the name of two variants"
            yield Fault(f"variant.{number}", problem, 'give this one a name of its own: name = "..."')
        yield from _set_faults(variant, varied, "variant", number, "set")
    yield from _set_faults(document, varied, "set")
    yield from _path_faults(grid, "grid")
    yield from _path_faults(tune, "tune")
    baseline = document.get("baseline")
    if isinstance(baseline, str) and baseline not in called:
        yield Fault("baseline", f"no variant is called {quoted(baseline)}", nearest(baseline, list(called)))
    if (
        document.get("interval") == "bootstrap"
        and isinstance(seeds, list)
        and len(seeds) < MIN_BOOTSTRAP_SEEDS
    ):
        holds = f"{100 * (1 - 2.0 ** (1 - len(seeds))):.0f} %"
        problem = (
            f"a bootstrap of {number_format.several(len(seeds), 'seed')}: even from the least of their "
            f"values to the largest, the mean is found in {holds} of studies at most"
        )
        mend = f'give at least {MIN_BOOTSTRAP_SEEDS} seeds, or write interval = "t"'
        yield Fault("interval", problem, mend)
    lists = [seeds, *grid.values(), *tune.values()]
    number = prod(len(values) for values in lists if isinstance(values, list))
    if isinstance(variants, list) and (number := number * len(variants)) > MAX_RUNS:
        yield Fault("grid", f"that makes {number} runs", f"vary less: a study has at most {MAX_RUNS}")


def _set_faults(
    table: Mapping[str, Any], varied: Sequence[tuple[str, str]], *above: str | int
) -> Iterator[Fault]:
    """Yield what is wrong with the values that a study or a variant sets."""
    yield from _path_faults(table.get("set"), *above)
    for path in table_of(table.get("set")):
        yield from _given_too(toml.path(*above, path), [entry for entry in varied if _hides(entry[1], path)])


def _given_too(place: str, others: Sequence[tuple[str, str]]) -> Iterator[Fault]:
    for table, path in others[:1]:
        yield Fault(place, f"[{table}] gives {path} too", "leave out one of the two")


def _hides(path: str, before: str) -> bool:
    """Whether nothing is left of what was put at a path before, once something is put at another path."""
    keys = keys_of(path)
    return bool(keys) and keys_of(before)[: len(keys)] == keys


def _path_faults(values: Any, *above: str | int) -> Iterator[Fault]:
    """Yield what is wrong with paths that are keys of a table."""
    for path, value in table_of(values).items():
        keys = keys_of(path)
        if not keys:
            yield Fault(toml.path(*above, path), f"the path {quoted(path)} is malformed", SPELLING)
        elif mend := ELSEWHERE.get(toml.path(*keys)):
            seeds = f"seeds = {shown(value if isinstance(value, list) else [value])}"
            problem = f"a study does not set {path} by its path"
            yield Fault(toml.path(*above, path), problem, mend.format(seeds=seeds))


def table_of(value: Any) -> dict[str, Any]:
    """Return a table, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}
