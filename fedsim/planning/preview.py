"""Tables that describe a scenario before it runs: its fleet, data and models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import isfinite, isinf

import numpy as np

from fedsim.data import FederatedData
from fedsim.fleet import Fleet
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.load import Load
from fedsim.fleet.power import ALL_QUANTITIES
from fedsim.models import Architecture
from fedsim.network.cells import NO_CELL, Cells, Rate, mean_bps
from fedsim.network.edges import Edges
from fedsim.network.fault_settings import ATTACKS, FATAL, OF_FRAMES
from fedsim.planning.rehearsal import QUANTILE_HEADINGS, quantiles
from fedsim.plugins import name_of
from fedsim.quoting import MAX_SHOWN, shortened
from fedsim.report import number_format
from fedsim.report.number_format import duration
from fedsim.report.text_table import TextTable
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario.algorithm_params import params_text
from fedsim.task import Task
from fedsim.units import Dimension, format_quantity, range_of

MAX_STALL = 10
"""Times the length of a round that a lost frame may hold it up before that is remarked on."""


def fleet(fleet: Fleet, *, with_powers: bool = False) -> TextTable:
    """Return the quantities of the clients' devices."""
    rows = []
    for name, quantity in (ALL_QUANTITIES if with_powers else QUANTITIES).items():
        dimension = quantity.spread.dimension
        show = partial(_quantity, dimension=dimension) if dimension else "{:.3g}".format
        rows.append((name, *quantiles(fleet.values(name), show)))
    notes = [
        f"{quantity} of {group.label}: mean of a trace, of "
        + number_format.several(len(traces.capacities), "trace")
        for group in fleet.groups
        for quantity, traces in group.link_traces.items()
    ]
    notes += [
        f"load of {group.label}: {_law(load)}, drawn for each job"
        for group in fleet.groups
        for load in dict.fromkeys(group.loads)
        if load is not None
    ]
    title = f"Fleet: {number_format.several(len(fleet), 'client')}"
    return TextTable(("quantity", *QUANTILE_HEADINGS), rows, notes, title=title)


def cells(cells: Cells) -> TextTable:
    """Return the networks that clients share."""

    def shown(rate: Rate) -> str:
        bps = mean_bps(rate)
        return "unlimited" if isinf(bps) else format_quantity(bps, "bit rate")

    sizes = np.bincount(cells.of[cells.of != NO_CELL], minlength=len(cells.names))
    rows = [
        (name, str(size), shown(up), shown(down), duration(latency_s))
        for name, size, up, down, latency_s in zip(
            cells.names, sizes, cells.up, cells.down, cells.latency_s, strict=True
        )
    ]
    notes = ["capacities that follow traces: their means"] if cells.is_traced else []
    headings = ("cell", "clients", "up", "down", "latency")
    return TextTable(headings, rows, notes, text_columns=frozenset({0}), title="Cells")


def edges(its: Edges, rehearsed: Mapping[str, int]) -> TextTable:
    """Return the edges, given the totals of their frames in a rehearsal."""
    clients, rates = Counter(its.of().tolist()), [its.up_bps, its.down_bps]
    links = [[format_quantity(bps, "bit rate") for bps in each] for each in rates]
    rows = [
        (name, str(clients[edge]), str(its.rounds[edge]), links[0][edge], links[1][edge], duration(latency_s))
        for edge, (name, latency_s) in enumerate(zip(its.names, its.latency_s, strict=True))
    ]
    frames = "; ".join(
        f"{rehearsed[f'frames_{way}']} frames {way}, {number_format.size(rehearsed[f'bytes_{way}'])}"
        for way in ("up", "down")
    )
    headings = ("edge", "clients", "rounds", "up", "down", "latency")
    where = "between them and the server in the rehearsed rounds, which the costs below leave out"
    return TextTable(headings, rows, [f"{where}: {frames}"], title="Edges")


def faults(parts: Parts, last: RoundRow) -> TextTable:
    """Return what faults come to, given a round without any."""
    frames = {"up": last.traffic.frames_up, "down": last.traffic.frames_down}
    rows = list[tuple[str, str, str, str]]()
    attacks = parts.attacks
    attackers = iter([] if attacks is None else attacks.counts())
    for config in parts.faults:
        if config.kind in ATTACKS:
            struck = "training labels" if config.kind == "label_flip" else "all replies"
            keys = ("factor", "deviation", "value")
            settings = [f"{key} {value:g}" for key in keys if (value := getattr(config, key)) is not None]
            kind = ", ".join([config.kind, *settings])
            rows.append((kind, str(next(attackers)), "always", struck))
            continue
        members = parts.fleet.clients_of(config.groups)
        num_clients = len(parts.fleet) if members is None else int(np.count_nonzero(members))
        ways = ("up", "down") if config.direction == "both" else (config.direction,)
        num_frames = sum(frames[way] for way in ways) * num_clients / len(parts.fleet)
        share = 1.0 if config.probability is None else config.probability
        struck = f"{share * num_frames:.3g} of {num_frames:.3g} frames of a round"
        if config.kind not in OF_FRAMES:
            struck = f"{share * num_clients:.3g} clients at once"
        is_always = not config.at and not isfinite(config.lasts_s) and config.kind != "crash"
        when = "always" if is_always else f"from {duration(config.at)} on"
        when += f", for {duration(config.lasts_s)}" if isfinite(config.lasts_s) else ""
        when += f", every {duration(config.every)}" if config.every is not None else ""
        kind = config.kind if config.delay is None else f"delay of {duration(config.delay)}"
        kind += "" if config.factor is None else f", by a factor of {config.factor:g}"
        rows.append((kind, str(num_clients), when, struck))
    round_s, timeout_s = last.ended_at_s - last.began_at_s, parts.client_timeout_s
    fatal = {one.kind for one in parts.faults if one.probability != 0} & {*FATAL, "crash"}
    notes = [
        f"{who} waits for participation.client_timeout = {duration(timeout_s)} if a reply does not come: "
        f"write a shorter one{instead}"
        for who, instead in _waiting_for_all(parts, crash="crash" in fatal)
        if fatal and timeout_s > MAX_STALL * round_s
    ]
    surprises = [one.kind for one in parts.faults if one.kind in ("slow", "delay") and one.probability != 0]
    if surprises and (by_s := parts.workload.reply_by_s) is not None:
        notes.append(
            f"participation.workload fits work into {duration(by_s)} as if there were no faults: replies may "
            "come later"
        )
    heading = ("fault", "clients", "when", "strikes, while it is on")
    return TextTable(heading, rows, notes, title="Faults")


def _waiting_for_all(parts: Parts, *, crash: bool) -> Iterator[tuple[str, str]]:
    """Yield what waits for the replies of all clients that are asked, and what to write instead.

    Exchanges without frames count only if clients may crash.
    """
    selector = parts.selector
    if parts.pacing.waits_for_all:
        yield "a round", ", or give participation.pacing a deadline"
    if selector.asks and selector.answer_within_s is None:
        yield f"selector {name_of(selector)!r}, which asks clients,", ""
    for exchange in parts.algorithm.exchanges:
        has_frames = exchange.instruct is not None or exchange.reply is not None
        if exchange.when != "round" and (has_frames or crash):
            yield f"exchange {exchange.name!r}, held once with all clients,", ""


def _quantity(value: float, dimension: Dimension) -> str:
    """Return a quantity with its unit; the largest data rate is that of memory which limits no job."""
    if dimension == "data rate" and value >= range_of(dimension).most:
        return "unlimited"
    return format_quantity(value, dimension)


def groups(parts: Parts) -> TextTable:
    """Return the groups of the fleet, how many of their clients can take part, and the server."""
    sizes, holds = parts.data.sizes("train"), parts.holds_job()
    has_samples = sizes > 0
    memory = parts.fleet.values("memory")
    rows, notes = [], []
    for group in parts.fleet.groups:
        own = slice(group.start, group.stop)
        able = int(np.count_nonzero(has_samples[own] & holds[own]))
        samples = number_format.count(int(sizes[own].sum()))
        rows.append((group.label, str(group.stop - group.start), str(able), ", ".join(group.models), samples))
        for label, mine in group.shares():
            small = mine & ~holds[own]
            if small.any():
                need, most = (
                    number_format.size(parts.needed_bytes(label)),
                    number_format.size(float(memory[own][small].max())),
                )
                clients = number_format.several(int(np.count_nonzero(small)), "client")
                who = f"{group.label}: {clients} never selected"
                notes.append(f"{who}: {label!r} needs {need} of memory, they have {most} at most")
        if idle := int(np.count_nonzero(~has_samples[own])):
            notes.append(
                f"{group.label}: {number_format.several(idle, 'client')} never selected: no training samples"
            )
    has_model = parts.algorithm.server_model or not parts.algorithm.mixed_architectures
    label = parts.fleet.server_model if has_model else ""
    rows.append((f"server ({parts.fleet.server.label})", "", "", label, ""))
    headings = ("group", "clients", "eligible", "model", "training\nsamples")
    return TextTable(headings, rows, notes, text_columns=frozenset({0, 3}), title="Groups")


def data(parts: Parts) -> TextTable:
    """Return how many samples clients hold, and what is held out."""
    held = parts.data
    rows = [
        (
            split,
            *quantiles(held.sizes(split), number_format.count),
            number_format.count(int(held.sizes(split).sum())),
        )
        for split in ("train", "val", "test")
    ]
    notes = [
        f"public set: {_public(held)}; global test set: {len(held.global_test)} samples",
        f"one sample: {' x '.join(map(str, held.task.input_shape))} inputs, {_outputs(held.task)}",
    ]
    title = "Data: samples of a client"
    return TextTable(("split", *QUANTILE_HEADINGS, "total"), rows, notes, title=title)


def models(parts: Parts) -> TextTable:
    """Return the architectures, and who has them."""
    having = Counter[str]()
    for group in parts.fleet.groups:
        having.update({label: int(np.count_nonzero(mine)) for label, mine in group.shares()})
    columns: dict[str, Callable[[Architecture], str]] = {
        "label": lambda architecture: architecture.label,
        "model": _model,
        "parameters": lambda architecture: f"{architecture.num_params:,}",
        "as float32": lambda architecture: number_format.size(4 * architecture.num_params),
        "clients": lambda architecture: str(having[architecture.label]),
    }
    architectures = parts.architectures.values()
    server = parts.server_model
    notes = [f"the server's own model: {server.label}, {server.num_params:,} parameters"] if server else []
    return TextTable.of(architectures, columns, notes=notes, text_columns=frozenset({0, 1}), title="Models")


def _model(architecture: Architecture) -> str:
    """Return the name of an architecture's plugin with its parameters."""
    params = ", ".join(f"{name} = {text}" for name, text in params_text(architecture.plugin.config).items())
    return name_of(architecture.plugin) + (f" ({shortened(params, MAX_SHOWN)})" if params else "")


def _outputs(task: Task) -> str:
    if task.kind == "regression":
        return number_format.several(task.num_outputs, "output")
    return f"{task.num_outputs} classes"


def _law(load: Load) -> str:
    numbers = load.model_dump(exclude={"distribution"})
    return ", ".join([load.distribution, *(f"{name} {value:g}" for name, value in numbers.items())])


def _public(held: FederatedData) -> str:
    origin = "" if held.public_labelled else " of another data set"
    where = "" if held.public_at_clients else ", held by the server alone"
    return f"{len(held.public)} samples{origin}{where}"
