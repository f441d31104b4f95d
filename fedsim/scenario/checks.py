"""What the tables of a scenario must say about each other.

Each rule reads single values, and ends where one of them is not valid by itself: so faults of every sort are
reported together, and a fault hides only what depends on the value that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any

import torch
from pydantic import BaseModel, ValidationError

from fedsim import toml_writer
from fedsim.config import Config
from fedsim.data import SPLITS
from fedsim.errors import DataError, Fault
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.device_table import read_table
from fedsim.network import LinkTraceConfig
from fedsim.network.link_traces import TRACED
from fedsim.plugins import install_command, is_installed
from fedsim.quoting import MAX_SHOWN, nearest, quoted, shortened
from fedsim.ranges import MAX_CLIENTS
from fedsim.scenario.choices import ALGORITHM, DATASET, EXECUTOR, NETWORK
from fedsim.scenario.schema import DEFAULT_MODEL, FleetGroup, Scenario

Path = tuple[str | int, ...]
"""Keys, and numbers of entries, from the whole document on."""


class NotValidError(Exception):
    """A value that has a fault, or lies in something that has: nothing can be said about it."""


class Values:
    """What is valid in a document."""

    def __init__(self, document: Mapping[str, Any] | Scenario, faults: Sequence[Fault] = ()) -> None:
        self._document = document
        self._faulty = [fault.path for fault in faults]

    def at(self, *path: str | int) -> Any:
        """Return a value, or its default where it is left out."""
        here = toml_writer.path(*path)
        if any(f"{place}.".startswith(f"{here}.") for place in self._faulty):
            raise NotValidError(here)
        try:
            return _below(self._document, path)
        except KeyError:
            return _default(path)

    def given(self, *paths: Path) -> Iterator[tuple[Path, Any]]:
        """Yield those of the paths whose values are valid and not their defaults, and these values."""
        for path in paths:
            with suppress(NotValidError):
                value = self.at(*path)
                if value != _default(path):
                    yield path, value

    def names(self, table: str) -> Sequence[str | int]:
        """Return the keys of a table, or the numbers of a list's entries, whether these are valid or not."""
        if table in self._faulty:
            raise NotValidError(table)
        try:
            item = _below(self._document, (table,))
        except KeyError:
            return ()
        return list(item) if isinstance(item, Mapping) else range(len(item))


def _below(item: Any, path: Path) -> Any:
    """Return what lies at a path below a document or a scenario; a KeyError says that it is left out."""
    for name in path:
        if isinstance(item, BaseModel):
            item = vars(item)
        try:
            item = item[name]
        except (IndexError, TypeError):
            raise NotValidError(toml_writer.path(*path)) from None
    return item


@cache
def _defaults() -> Mapping[str, Any]:
    group = {"count": 1}
    smallest = Scenario.model_validate({"run": {"rounds": 1}, "fleet": [group]})
    # A group of the scenario has the quantities of its device class.
    return {**dict(smallest), "fleet": (FleetGroup.model_validate(group),)}


def _default(path: Path) -> Any:
    try:
        return _below(_defaults(), tuple(0 if isinstance(name, int) else name for name in path))
    except KeyError:
        raise NotValidError(toml_writer.path(*path)) from None


def check(document: Mapping[str, Any] | Scenario, faults: Sequence[Fault] = ()) -> list[Fault]:
    """Return the faults between the tables of a document."""
    values = Values(document, faults)
    between: list[Fault] = []
    for rule in RULES:
        with suppress(NotValidError):
            between.extend(rule(values))
    return between


def server_label(scenario: Scenario) -> str:
    """Return the label of the server's architecture: its own, or else the first that the first group has."""
    first = scenario.fleet[0]
    of_shares = next((label for shares in first.shares for label in shares), None)
    return scenario.server.model or first.model or of_shares or next(iter(scenario.models))


def _num_clients(values: Values) -> int:
    return sum(values.at("fleet", number, "count") for number in values.names("fleet"))


def _population(values: Values) -> Iterator[Fault]:
    if (there := _num_clients(values)) > MAX_CLIENTS:
        problem = f"{there} clients in all groups together"
        yield Fault("fleet", problem, f"write counts that add up to {MAX_CLIENTS} or fewer")


def _cohort(values: Values) -> Iterator[Fault]:
    wanted, there = values.at("participation", "clients_per_round"), _num_clients(values)
    if wanted is not None and wanted > there:
        yield Fault(
            "participation.clients_per_round",
            f"{wanted} clients a round, but the fleet has {there}",
            f"write {there} or fewer, or leave it out to ask all",
        )


def _labels(values: Values) -> Iterator[Fault]:
    labels = _models(values)
    for path, label in _labelled(values):
        if label is not None and label not in labels:
            yield Fault(path, f"no model is labelled {quoted(label)}", nearest(label, labels))
        elif label is None and len(labels) > 1 and path != "server.model":
            listed = shortened(", ".join(labels), MAX_SHOWN)
            problem = f"it names no model, and there are {len(labels)}: {listed}"
            mend = f"add model = {quoted(labels[0])} or another of them"
            yield Fault(path.removesuffix(".model"), problem, mend)


def _one_architecture(values: Values) -> Iterator[Fault]:
    name, labels = values.at("algorithm", "name"), _models(values)
    if ALGORITHM.find(name).mixed_architectures:
        return
    default = labels[0] if len(labels) == 1 else None
    first = next((label for _, label in _labelled(values) if label is not None), default)
    if first not in labels:
        return
    able = [other for other in ALGORITHM.names if ALGORITHM.find(other).mixed_architectures]
    rule = f"{name} needs the same model everywhere"
    mend = f"write {quoted(first)}, or choose an algorithm for mixed architectures: {', '.join(able)}"
    for path, label in _labelled(values):
        if label in labels and label != first:
            whose = "the clients'" if path == "server.model" else "the first group's"
            yield Fault(path, f"model {quoted(label)} is not {whose}: {rule}", mend)


def _public_set(values: Values) -> Iterator[Fault]:
    name = values.at("algorithm", "name")
    if ALGORITHM.find(name).needs_public and not _public_there(values):
        yield Fault(
            "data.public.size",
            f"0 samples, but {name} exchanges knowledge on a public set",
            "write size = 200, say, below [data.public]",
        )


def _public_source(values: Values) -> Iterator[Fault]:
    source = values.at("data", "public", "source")
    if source is None or values.at("data", "public", "size") == 0:  # with users alone, _users_or_samples says
        return
    (name, params), (other, others) = _chosen(values, "data"), _chosen(values, "data", "public", "source")
    own = DATASET.find(name)
    if not own.has_samples:
        return
    if not DATASET.find(other).has_samples:
        problem = f"data set {other!r} has sample counts only, so there is nothing to draw from"
        yield Fault("data.public.source", problem, "choose a data set with samples")
    elif own is DATASET.find(other) and all(
        getattr(params, key) == getattr(others, key)
        for key in (type(params).model_fields if own.origin is None else own.origin)
    ):
        problem = f"{other!r} is the data set itself, whose samples clients train on"
        mend = "leave it out: the public set is then held out of it"
        mend += f"; or change its params.{own.origin[0]}" if own.origin else ""
        yield Fault("data.public.source", problem, mend)


def _users_or_samples(values: Values) -> Iterator[Fault]:
    for users, samples, words in (
        (("data", "global_test_users"), ("data", "global_test"), "global_test = {} of the samples: it"),
        (("data", "public", "users"), ("data", "public", "size"), "size = {} samples: the public set"),
    ):
        share, other = _valid(values, *users, otherwise=0), _valid(values, *samples, otherwise=0)
        if share and other:
            problem = f"{share} of the users, and {words.format(other)} is one or the other"
            yield Fault(toml_writer.path(*users), problem, "keep one of the two")
    if values.at("data", "public", "users"):
        for path, _ in values.given(("data", "public", "source")):
            problem = "the public set is users of the data set itself, and its source is another one"
            yield Fault(toml_writer.path(*path), problem, "leave it out, or write size instead of users")


def _public_of_none(values: Values) -> Iterator[Fault]:
    if _public_there(values):
        return
    for path, _ in values.given(*(("data", "public", key) for key in ("source", "augment", "held"))):
        problem = f"data.public.size is 0, so {path[-1]} says nothing"
        yield Fault(toml_writer.path(*path), problem, f"write size = 200, say, or leave {path[-1]} out")


def _sample_counts(values: Values) -> Iterator[Fault]:
    name = values.at("data", "name")
    if DATASET.find(name).has_samples:
        return
    counts = f"data set {quoted(name)} has sample counts only"
    executor = _valid(values, "engine", "executor")
    if executor is not None and EXECUTOR.find(executor).learns:
        mend = 'write executor = "null" below [engine], or choose a data set with samples'
        yield Fault("engine.executor", f"{executor!r} trains, and {counts}", mend)
    for path, share in values.given(("data", "global_test")):
        yield Fault(toml_writer.path(*path), f"{share} of no samples: {counts}", "leave it out")
    for path, share in values.given(("data", "global_test_users"), ("data", "public", "users")):
        yield Fault(toml_writer.path(*path), f"{share} of no users: {counts}", "leave it out")
    if _public_there(values):
        for path, augment in values.given(("data", "public", "augment")):
            yield Fault(
                toml_writer.path(*path), f"{augment!r} transforms images, and {counts}", "leave it out"
            )
    if values.at("data", "public", "size"):
        for path, _ in values.given(("data", "public", "source")):
            yield Fault(
                toml_writer.path(*path), f"{counts}, so its public set is a number too", "leave it out"
            )


def _something_to_measure(values: Values) -> Iterator[Fault]:
    every, every_s, at_start, split = (
        values.at("evaluation", key) for key in ("every", "every_s", "at_start", "split")
    )
    shares = values.at("data", "split")
    learns = EXECUTOR.find(values.at("engine", "executor")).learns
    if (every == 0 and every_s is None and not at_start) or shares is None or not learns:
        return
    several = shares if isinstance(shares[0], list | tuple) else [shares]
    if all(triple[SPLITS.index(split)] == 0 for triple in several):
        listed = ", ".join(str(list(map(float, triple))) for triple in several)
        nothing = "every = 0 and at_start = false" if at_start else "every = 0"
        yield Fault(
            "evaluation.split",
            f"{split!r} has the share 0 in data.split = {listed}: nothing to measure on",
            f"give it a share, choose the other split, or write {nothing} to measure nothing",
        )


def _traces(values: Values) -> Iterator[Fault]:
    for table in ("fleet", "cell"):
        with suppress(NotValidError):
            for number, key in product(values.names(table), TRACED.values()):
                with suppress(NotValidError):
                    yield from _trace(values, table, number, key)


def _trace(values: Values, *place: str | int) -> Iterator[Fault]:
    where: Path = (*place, "file")
    files = _valid(values, *where)
    if files is None:  # no table, perhaps, but the files alone
        files, where = values.at(*place), place
    if files is None:
        return
    name = _valid(values, *place, "name")
    try:
        LinkTraceConfig.model_validate({"file": files, "name": name}).read()
    except DataError as error:
        yield Fault(toml_writer.path(*where), str(error))
        return
    model = values.at("network", "model")
    if not NETWORK.find(model).follows_traces:
        problem = f"links follow no trace in network model {model!r}, where they are constant"
        mend = "write network.model = 'fluid', or give a rate instead"
        yield Fault(toml_writer.path(*place), problem, mend)


def _cells(values: Values) -> Iterator[Fault]:
    model = values.at("network", "model")
    if values.names("cell") and not NETWORK.find(model).follows_cells:
        problem = f"in network model {model!r} clients share no links"
        yield Fault("cell", problem, "write network.model = 'fluid', or leave [[cell]] out")


def _device_files(values: Values) -> Iterator[Fault]:
    for number in values.names("fleet"):
        place = ("fleet", number)
        if (file := _valid(values, *place, "file")) is None:
            continue
        # What has a fault of its own counts as given: it is not worth a second fault.
        keys = [(name, key) for name in QUANTITIES for key in (name, TRACED.get(name, name))]
        given = [name for name, key in keys if _valid(values, *place, key, otherwise=...) is not None]
        try:
            read_table(file).require(given, _valid(values, *place, "count"))
        except DataError as error:
            yield Fault(toml_writer.path(*place, "file"), str(error))


def _installed(values: Values) -> Iterator[Fault]:
    executor = values.at("engine", "executor")
    extra = EXECUTOR.find(executor).extra
    if extra and not is_installed(extra):
        problem = f"{executor!r} needs the package {extra}, which is not installed"
        yield Fault("engine.executor", problem, install_command(extra))


def _cuda(values: Values) -> Iterator[Fault]:
    executor = _valid(values, "engine", "executor")
    if executor is not None and EXECUTOR.find(executor).is_elsewhere:
        return  # other computers may have one
    if values.at("engine", "device") == "cuda" and not torch.cuda.is_available():
        problem = "'cuda' is asked for, but torch finds no CUDA device on this computer"
        yield Fault("engine.device", problem, "write 'cpu', or install a torch with CUDA and its driver")


def _portable(values: Values) -> Iterator[Fault]:
    if values.at("engine", "numerics") == "portable" and values.at("engine", "device") == "cuda":
        problem = "'cuda' is asked for, and engine.numerics = 'portable' is for kernels of x86-64 processors"
        yield Fault("engine.device", problem, "write 'cpu', or engine.numerics = 'native'")


def _models(values: Values) -> list[str]:
    return [str(label) for label in values.names("models")] or [DEFAULT_MODEL]


def _labelled(values: Values) -> Iterator[tuple[str, Any]]:
    """Yield where a group or the server names a label, and the label, where that is valid; None for none."""
    with suppress(NotValidError):  # the server has a label all the same
        for number in values.names("fleet"):
            with suppress(NotValidError):
                yield from _labels_of(values, ("fleet", number))
    with suppress(NotValidError):
        yield "server.model", values.at("server", "model")


def _labels_of(values: Values, group: Path) -> Iterator[tuple[str, Any]]:
    shares: list[tuple[Path, Any]] = [(("models",), values.at(*group, "models"))]
    by_size = values.at(*group, "models_by_size")
    shares += [(("models_by_size", number), some) for number, some in enumerate(by_size or ())]
    named = [
        (toml_writer.path(*group, *where, label), label) for where, some in shares for label in some or ()
    ]
    yield from named or [(toml_writer.path(*group, "model"), values.at(*group, "model"))]


def _valid(values: Values, *place: str | int, otherwise: Any = None) -> Any:
    """Return a value, or ``otherwise`` where it has a fault."""
    try:
        return values.at(*place)
    except NotValidError:
        return otherwise


def _chosen(values: Values, *place: str) -> tuple[str, Config]:
    """Return the name and the parameters of a data set, which may be given by its name alone."""
    table = values.at(*place)
    given = {"name": table} if isinstance(table, str) else dict(table)
    name = given.get("name") or values.at(*place, "name")
    try:
        return name, DATASET.find(name).Config.model_validate(given.get("params", {}))
    except ValidationError as error:
        # It lacks parameters, and the fault's path is not where they would be.
        raise NotValidError(toml_writer.path(*place)) from error


def _public_there(values: Values) -> bool:
    return bool(values.at("data", "public", "size") or values.at("data", "public", "users"))


RULES: tuple[Callable[[Values], Iterator[Fault]], ...] = (
    _population,
    _cohort,
    _labels,
    _one_architecture,
    _public_set,
    _public_source,
    _users_or_samples,
    _public_of_none,
    _sample_counts,
    _something_to_measure,
    _traces,
    _cells,
    _device_files,
    _installed,
    _cuda,
    _portable,
)
