"""What the tables of a scenario must say about each other.

Each rule reads single values, and ends where one of them is not valid by itself: so faults of every sort are
reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from fedsim.config import Config
from fedsim.data import SPLITS
from fedsim.errors import DataError, Fault
from fedsim.fleet import GroupConfig, ServerConfig
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.device_table import read_table
from fedsim.fleet.entries import TRACED
from fedsim.network import LinkTraceConfig
from fedsim.quoting import MOST_SAID, nearest, quoted, shortened
from fedsim.ranges import MOST_CLIENTS
from fedsim.scenario import toml
from fedsim.scenario.choices import ALGORITHM, DATASET, EXECUTOR, NETWORK, ModelChoice
from fedsim.scenario.schema import DEFAULT_MODEL
from fedsim.scenario.schema_paths import NotValidError, Path, Values

Fleet = tuple[GroupConfig, ...]
Models = Mapping[str, ModelChoice]


def check(values: Values) -> list[Fault]:
    """Return the faults between the tables of a document."""
    found: list[Fault] = []
    for rule in RULES:
        try:
            found.extend(rule(values))
        except NotValidError:
            continue
    return found


def server_label(models: Models, fleet: Fleet, server: ServerConfig) -> str:
    """Return the label of the server's architecture: its own, or else the first that the first group has."""
    of_shares = next((label for shares in fleet[0].shares for label in shares), None)
    return server.model or fleet[0].model or of_shares or next(iter(models))


def _num_clients(values: Values) -> int:
    return sum(values.at("fleet", number, "count") for number in values.names("fleet"))


def _population(values: Values) -> Iterator[Fault]:
    if (there := _num_clients(values)) > MOST_CLIENTS:
        problem = f"{there} clients in all groups together"
        yield Fault("fleet", problem, f"write counts that add up to {MOST_CLIENTS} or fewer")


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
            listed = shortened(", ".join(labels), MOST_SAID)
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
    if source is None or values.at("data", "public", "size") == 0:  # with users alone, _public_users says
        return
    (name, params), (other, others) = _chosen(values, "data"), _chosen(values, "data", "public", "source")
    own = DATASET.find(name)
    if not DATASET.find(other).has_samples:
        problem = f"data set {other!r} has sample counts only, so there is nothing to draw from"
        yield Fault("data.public.source", problem, "choose a data set with samples")
    elif not own.has_samples:
        problem = f"data set {quoted(name)} has sample counts only, so its public set is a number too"
        yield Fault("data.public.source", problem, "leave it out")
    elif own is DATASET.find(other) and _same_samples(own.origin, params, others):
        problem = f"{other!r} is the data set itself, whose samples clients train on"
        mend = "leave it out: the public set is then held out of it"
        mend += f"; or change its params.{own.origin[0]}" if own.origin else ""
        yield Fault("data.public.source", problem, mend)


def _public_users(values: Values) -> Iterator[Fault]:
    users = values.at("data", "public", "users")
    if users == 0:
        return
    if (size := values.at("data", "public", "size")) > 0:
        problem = f"{users} of the users, and size = {size} samples: the public set is one or the other"
        yield Fault("data.public.users", problem, "keep one of the two")
    for path, _ in values.given(("data", "public", "source")):
        problem = "the public set is users of the data set itself, and its source is another one"
        yield Fault(toml.path(*path), problem, "leave it out, or write size instead of users")


def _public_of_none(values: Values) -> Iterator[Fault]:
    if _public_there(values):
        return
    for path, _ in values.given(*(("data", "public", key) for key in ("source", "augment", "held"))):
        problem = f"data.public.size is 0, so {path[-1]} says nothing"
        yield Fault(toml.path(*path), problem, f"write size = 200, say, or leave {path[-1]} out")


def _public_images(values: Values) -> Iterator[Fault]:
    name, augment = values.at("data", "name"), values.at("data", "public", "augment")
    if augment != "none" and _public_there(values) and not DATASET.find(name).has_samples:
        problem = f"{augment!r} transforms images, and data set {quoted(name)} has sample counts only"
        yield Fault("data.public.augment", problem, "leave it out")


def _something_to_learn(values: Values) -> Iterator[Fault]:
    name, executor = values.at("data", "name"), values.at("engine", "executor")
    if EXECUTOR.find(executor).learns and not DATASET.find(name).has_samples:
        yield Fault(
            "engine.executor",
            f"{executor!r} trains, and data set {quoted(name)} has sample counts only",
            'write executor = "null" below [engine], or choose a data set with samples',
        )


def _counts_alone(values: Values) -> Iterator[Fault]:
    name = values.at("data", "name")
    if DATASET.find(name).has_samples:
        return
    of: dict[Path, str] = {
        ("data", "global_test"): "samples",
        ("data", "global_test_users"): "users",
        ("data", "public", "users"): "users",
    }
    for path, share in values.given(*of):
        problem = f"{share} of no {of[path]}: data set {quoted(name)} has sample counts only"
        yield Fault(toml.path(*path), problem, "leave it out")


def _one_global_test(values: Values) -> Iterator[Fault]:
    samples, users = values.at("data", "global_test"), values.at("data", "global_test_users")
    if samples > 0 and users > 0:
        problem = f"{users} of the users, and global_test = {samples} of the samples: it is one or the other"
        yield Fault("data.global_test_users", problem, "keep one of the two")


def _something_to_measure(values: Values) -> Iterator[Fault]:
    every, split = values.at("evaluation", "every"), values.at("evaluation", "split")
    shares = values.at("data", "split")
    if not every or shares is None or not EXECUTOR.find(values.at("engine", "executor")).learns:
        return
    several = shares if isinstance(shares[0], list | tuple) else [shares]
    if all(one[SPLITS.index(split)] == 0 for one in several):
        listed = ", ".join(str(list(map(float, one))) for one in several)
        yield Fault(
            "evaluation.split",
            f"{split!r} has the share 0 in data.split = {listed}: nothing to measure on",
            "give it a share, choose the other split, or write every = 0 to measure nothing",
        )


def _traces(values: Values) -> Iterator[Fault]:
    for number in values.names("fleet"):
        for key in TRACED.values():
            with suppress(NotValidError):
                yield from _trace(values, "fleet", number, key)


def _trace(values: Values, *place: str | int) -> Iterator[Fault]:
    name, where = None, (*place, "file")
    try:
        files, name = values.at(*where), values.at(*place, "name")
    except NotValidError:  # no table, perhaps, but the files alone
        files, where = values.at(*place), place
    if files is None:
        return
    try:
        LinkTraceConfig.model_validate({"file": files, "name": name}).read()
    except DataError as error:
        yield Fault(toml.path(*where), str(error))
        return
    model = values.at("network", "model")
    if not NETWORK.find(model).follows_traces:
        problem = f"links follow no trace in network model {model!r}, where they are constant"
        mend = "write network.model = 'fluid', or give a rate instead"
        yield Fault(toml.path(*place), problem, mend)


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
            yield Fault(toml.path(*place, "file"), str(error))


def _cuda(values: Values) -> Iterator[Fault]:
    import torch

    if values.at("engine", "device") == "cuda" and not torch.cuda.is_available():
        problem = "'cuda' is asked for, but torch finds no CUDA device on this computer"
        yield Fault("engine.device", problem, "write 'cpu', or install a torch with CUDA and its driver")


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
    named = [(toml.path(*group, *where, label), label) for where, some in shares for label in some or ()]
    yield from named or [(toml.path(*group, "model"), values.at(*group, "model"))]


def _valid(values: Values, *place: str | int, otherwise: Any = None) -> Any:
    """Return a value, or ``otherwise`` where it has a fault."""
    try:
        return values.at(*place)
    except NotValidError:
        return otherwise


def _chosen(values: Values, *place: str) -> tuple[str, Config]:
    """Return the name and the parameters of a data set, which may be given by its name alone."""
    name: Any = values.at(*place)
    params: Any = None
    if not isinstance(name, str):
        name, params = values.at(*place, "name"), values.at(*place, "params")
    config = DATASET.find(name).Config
    try:
        return name, config.model_validate(params if isinstance(params, Mapping | Config) else {})
    except ValidationError as error:
        # It lacks parameters, and the fault's path is not where they would be.
        raise NotValidError(toml.path(*place)) from error


def _same_samples(origin: tuple[str, ...] | None, params: Config, others: Config) -> bool:
    if origin is None:
        return params == others
    return all(getattr(params, key) == getattr(others, key) for key in origin)


def _public_there(values: Values) -> bool:
    return bool(values.at("data", "public", "size") or values.at("data", "public", "users"))


RULES: tuple[Callable[[Values], Iterator[Fault]], ...] = (
    _population,
    _cohort,
    _labels,
    _one_architecture,
    _public_set,
    _public_source,
    _public_users,
    _public_of_none,
    _public_images,
    _something_to_learn,
    _counts_alone,
    _one_global_test,
    _something_to_measure,
    _traces,
    _device_files,
    _cuda,
)
