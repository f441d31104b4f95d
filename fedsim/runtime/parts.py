"""The ready-made parts of a run: a test or a notebook makes one in ten lines, without any file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.algorithms.aggregation.base import Aggregation
from fedsim.algorithms.base import Algorithm, Setting
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.data import FederatedData
from fedsim.engine.cost import Effort, duration_s
from fedsim.engine.executors.base import Executor
from fedsim.engine.memory_need import needed_bytes
from fedsim.engine.slowdowns import Slowdowns
from fedsim.engine.training_config import TrainingConfig
from fedsim.engine.worker_state import Resources
from fedsim.errors import Fault, UserError
from fedsim.fleet import Fleet
from fedsim.fleet.power import POWERS, EnergyConfig
from fedsim.models import Architecture
from fedsim.models.flops import Operations
from fedsim.network import NO_OVERHEAD, Carrier, Links, NetworkPlugin, OverheadConfig
from fedsim.network.cells import Cells
from fedsim.network.edges import Edges
from fedsim.network.fault_settings import ATTACKS, FATAL, OF_FRAMES, BaseFaultConfig, Kind, RetryConfig
from fedsim.network.faults import FaultyCarrier, RunFault
from fedsim.params import Array
from fedsim.plugins import name_of
from fedsim.quoting import nearest, quoted
from fedsim.ranges import MAX_ROUNDS, BatchSize, Clients, Interval
from fedsim.rng import Key
from fedsim.runtime import message_codecs, told_losses
from fedsim.runtime.budget import UntilConfig
from fedsim.runtime.clients.attacks import Attacks, with_flipped_labels
from fedsim.runtime.clients.crashes import Crashes
from fedsim.runtime.clients.interrupted_work import OnLeave
from fedsim.runtime.least_times import least_times_s
from fedsim.runtime.policies.pacing.base import Pacing
from fedsim.runtime.policies.selectors.base import Selector
from fedsim.runtime.policies.workloads.base import Workload
from fedsim.runtime.start_values import StartValues
from fedsim.units import format_quantity, spell
from fedsim.wire import SERVER
from fedsim.wire.codecs.choices import NO_CODECS, CodecConfig

MAX_STALENESS = 10**6
"""A staleness that no reply reaches."""


class EvaluationConfig(Config):
    """When accuracy is measured, and on whom; it costs no virtual time."""

    every: Interval | None = None
    """Rounds between two evaluations; 1 if left out, where there is no ``every_s`` either. The last round is
    always evaluated. 0: never by rounds."""
    every_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Simulated seconds between two evaluations: the first round to end after each such time is evaluated."""
    at_start: bool = False
    """Whether there is also one before the first round, after what the algorithm does before its rounds."""
    clients: Clients = 1000
    """At most so many clients, drawn once by seed."""
    split: Literal["test", "val"] = "test"
    """On which of the clients' splits."""
    batch_size: BatchSize = 256
    """Samples in a forward pass."""
    per_class: bool = False
    """Whether samples are also counted by true and predicted class, for recall, precision and F1 of each
    class (tables ``classes`` and ``confusion``)."""

    @property
    def rounds_between(self) -> int:
        """Rounds between two evaluations; 0: none by rounds."""
        return int(self.every_s is None) if self.every is None else self.every

    @property
    def is_on(self) -> bool:
        """Whether rounds are evaluated."""
        return bool(self.rounds_between) or self.every_s is not None


@dataclass(frozen=True)
class Parts:
    """All that a run is made of.

    Attributes:
        algorithm: What is run.
        data: Samples, and who holds them.
        fleet: Devices of clients and server.
        architectures: By label.
        network: How parcels move.
        overhead: What protocols add to a frame on the link.
        codec: How messages are coded.
        cells: Networks that groups of clients share; None where there are none.
        edges: Aggregators at the doors of cells; None where there are none.
        faults: What goes wrong in the network and at clients.
        retry: How frames are sent again that do not arrive; None where they are not.
        energy: Whether energy is computed once the run has ended, and what it costs.
        executor: Who trains.
        selector: Who is in a cohort.
        pacing: When a round closes.
        workload: How much clients do for a dispatch.
        aggregation: How the server combines the models that clients send.
        training: How clients train.
        evaluation: What is measured.
        rounds: How many rounds; None where a budget ends them.
        clients_per_round: Size of a cohort; None for all that are eligible.
        seed: The one seed.
        client_timeout_s: The lease of a dispatch: a client that has not replied by then counts as dropped.
        on_leave: What becomes of work when its client goes away.
        device: Where jobs run: ``cpu`` or ``cuda``.
        numerics: ``portable`` if the bits should be equal on different x86-64 processors.
        verify: Check everything that can be checked, at the price of speed.
        until: Budgets that end the rounds; None: they come to their end.
        rebuild: Makes what jobs need in another process, for an executor whose jobs are done there.

    Raises:
        UserError: The fleet is not as large as the data set's population, or has links that follow traces
            or cells, which the network model does not.
    """

    algorithm: Algorithm[Any, Any, Any]
    data: FederatedData
    fleet: Fleet
    architectures: Mapping[str, Architecture]
    network: NetworkPlugin[Any]
    executor: Executor
    selector: Selector[Any]
    pacing: Pacing[Any]
    training: TrainingConfig
    rounds: int | None
    seed: int = 0
    clients_per_round: int | None = None
    client_timeout_s: float = 3600.0
    on_leave: OnLeave = "resume"
    workload: Workload[Any] = field(default_factory=lambda: Workload(Config()))
    aggregation: Aggregation[Any] = field(default_factory=lambda: Aggregation(Config()))
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    overhead: OverheadConfig = NO_OVERHEAD
    codec: CodecConfig = NO_CODECS
    cells: Cells | None = None
    edges: Edges | None = None
    faults: tuple[BaseFaultConfig, ...] = ()
    retry: RetryConfig | None = None
    energy: EnergyConfig | None = None
    device: str = "cpu"
    numerics: Literal["native", "portable"] = "native"
    verify: bool = False
    until: UntilConfig | None = None
    rebuild: Callable[[], Resources] | None = None

    def __post_init__(self) -> None:
        if len(self.fleet) != self.data.num_clients:
            raise UserError(
                f"the fleet has {len(self.fleet)} devices and the data {self.data.num_clients} clients: "
                "give both the same number"
            )
        if self.fleet.is_traced and not self.network.follows_traces:
            raise UserError(
                f"links of the fleet follow traces, and network model {name_of(self.network)!r} has constant "
                "ones: choose a model that follows traces, such as 'fluid', or give the links constant rates"
            )
        if self.cells is not None and not self.network.follows_cells:
            raise UserError(
                f"clients share links of cells, and in network model {name_of(self.network)!r} they share "
                "none: choose a model with cells, such as 'fluid', or give no cells"
            )

    @property
    def key(self) -> Key:
        """The root of all generators."""
        return Key.root(self.seed)

    def resources(self) -> Resources:
        """Return what jobs need. Where other processes do them, samples stay on the CPU here."""
        device = "cpu" if self.executor.is_elsewhere else self.device
        data, rebuild, attacks = self.data, self.rebuild, self.attacks
        if attacks is not None and len(clients := attacks.flips_labels()):
            data = with_flipped_labels(data, clients)
            rebuild = rebuild and partial(_flipping_labels, rebuild, clients)
        if rebuild is not None and self.verify:
            rebuild = partial(_verifying, rebuild)
        return Resources.of(
            data,
            self.architectures,
            device,
            rebuild,
            verify=self.verify,
            portable=self.numerics == "portable",
        )

    def with_faults(self, carrier: Carrier, trace: Trace) -> Carrier:
        """Return what carries frames as a carrier does, with the faults of the network, which it records."""
        faults = self.faults_of_frames()
        return FaultyCarrier(carrier, faults, trace) if faults else carrier

    def links(self) -> Links:
        """Return the links of all clients, of cells and of the server."""
        links, cells, edges = self.fleet.links(), self.cells, self.edges
        if cells is None:
            return links
        apart = () if edges is None else edges.cell
        return replace(
            links,
            latency_s=self.fleet.values("latency") + cells.latencies_s(),
            shared_up=cells.shared(up=True, apart=apart),
            shared_down=cells.shared(up=False, apart=apart),
            edges=edges,
        )

    @property
    def is_traced(self) -> bool:
        """Whether any link of clients or cells follows a trace."""
        return self.fleet.is_traced or (self.cells is not None and self.cells.is_traced)

    @cached_property
    def crashes(self) -> Crashes | None:
        """Return the crashes of clients; None where there are none."""
        faults = self._faults(lambda kind: kind == "crash")
        return Crashes(faults) if faults else None

    @cached_property
    def slowdowns(self) -> Slowdowns | None:
        """Return when devices are slow; None where they never are."""
        faults = self._faults(lambda kind: kind == "slow")
        return Slowdowns(faults) if faults else None

    @cached_property
    def attacks(self) -> Attacks | None:
        """Return who attacks; None where nobody does."""
        faults = self._faults(lambda kind: kind in ATTACKS)
        return Attacks(faults, self.data.num_clients) if faults else None

    def faults_of_frames(self) -> list[RunFault]:
        """Return the faults of the network."""
        return self._faults(lambda kind: kind in OF_FRAMES)

    def _faults(self, are_wanted: Callable[[Kind], bool]) -> list[RunFault]:
        key, numbers, faults = self.key.child("faults"), Counter[str](), []
        for config in self.faults:
            if are_wanted(config.kind):
                own = key.child(config.kind, str(numbers[config.kind]))
                faults.append(RunFault(config, own, self.fleet.clients_of(config.groups)))
            numbers[config.kind] += 1
        return faults

    @property
    def server_model(self) -> Architecture | None:
        """The architecture of the model that the server has beside the clients'; None where it has none."""
        return self.architectures[self.fleet.server_model] if self.algorithm.server_model else None

    @property
    def num_rounds(self) -> int:
        """How many rounds there are at most."""
        return MAX_ROUNDS if self.rounds is None else self.rounds

    @property
    def cohort_size(self) -> int:
        """Replies wanted of a cohort."""
        return self.clients_per_round or int(np.count_nonzero(self._can_take_part()))

    def misfits(self) -> Iterator[Fault]:
        """Yield each thing for which the algorithm or the selector cannot work with the other parts."""
        yield from self._pacing_misfits()
        yield from self._workload_misfits()
        yield from self._budget_misfits()
        yield from self._battery_misfits()
        yield from self._per_class_misfits()
        yield from self._schedule_misfits()
        yield from self._fault_misfits()
        yield from self._aggregation_misfits()
        yield from self._edge_misfits()
        yield from self.codec.faults()
        yield from message_codecs.misfits(self)
        names = {told_losses.QUESTION} if self.selector.asks else set[str]()
        for exchange in self.algorithm.exchanges:
            if exchange.name in names:
                problem = f"two of its exchanges are called {exchange.name!r}"
                yield Fault("algorithm", problem, "give each its own name")
            if exchange.reply is not None and exchange.local is None:
                problem = f"exchange {exchange.name!r} wants replies that no client makes"
                yield Fault("algorithm", problem, "give it local = ...")
            names.add(exchange.name)
        labels = dict.fromkeys(label for group in self.fleet.groups for label in group.models)
        setting = Setting(
            self.data.task,
            {label: self.architectures[label] for label in labels},
            self.architectures[self.fleet.server_model],
            len(self.data.public),
            self.data.public_labelled,
            self.data.public_at_clients,
            self.architectures,
            self.training,
            self.num_rounds,
            self.cohort_size,
            name_of(self.pacing),
            self.pacing.merge_size(self.cohort_size),
            self.pacing.carries,
            self.workload.varies,
        )
        yield from self.algorithm.misfits(setting)
        yield from self.selector.misfits(setting)
        yield from told_losses.faults(self.algorithm, self.selector)

    def _pacing_misfits(self) -> Iterator[Fault]:
        algorithm, pacing = self.algorithm, name_of(self.pacing)
        size = self.pacing.merge_size(self.cohort_size)
        yield from self.pacing.misfits(self.cohort_size, int(np.count_nonzero(self._can_take_part())))
        if size is None:
            return
        if (why := self._only_synchronous()) is not None:
            yield Fault(
                "participation.pacing",
                f"{pacing!r} merges replies of several versions, and {name_of(algorithm)!r} cannot: {why}",
                "write 'synchronous', or choose another algorithm, or other parameters of it",
            )
            return
        path, mean = "participation.pacing.params", f"in a mean, which {name_of(algorithm)!r} takes,"
        fresh, stale = self.pacing.discount(0), self.pacing.discount(MAX_STALENESS)
        if algorithm.discounted == "shares" and size == 1 and stale < fresh:
            yield Fault(
                path,
                f"each merge is of one reply: {mean} its share is 1 however stale it is",
                "merge several, discount nothing, or choose an algorithm whose steps are discounted",
            )
        elif algorithm.discounted == "shares" and fresh != 1:
            yield Fault(
                path,
                f"{mean} only the ratios of discounts count, whichever staleness counts in full",
                "leave full_at out, or choose an algorithm whose steps are discounted",
            )

    def _battery_misfits(self) -> Iterator[Fault]:
        fleet = self.fleet
        clients = np.flatnonzero(self._can_take_part()).tolist() if fleet.has_batteries else []
        if clients and not any(map(fleet.may_be_charged, clients)):
            number = fleet.group(clients[0])
            problem = (
                "no client can ever start: each battery is empty or below its floor, and none is charged"
            )
            mend = "write a higher level or a lower floor, or give charge_power and plugged"
            yield Fault(f"fleet.{number}.battery", problem, mend)

    def _budget_misfits(self) -> Iterator[Fault]:
        if self.until is None:
            return
        powers = (name for name, one in POWERS.items() if one.spread.dimension == "power")
        if self.until.joules is not None and not any(np.any(self.fleet.values(name)) for name in powers):
            mend = "give [[fleet]] powers such as compute_power, or another budget"
            yield Fault("run.until.joules", "nothing draws power, so no energy is spent", mend)
        if self.until.accuracy is None:
            return
        path = "run.until.accuracy"
        if not self.executor.learns:
            yield Fault(path, "nothing is learned, so no accuracy is measured", "give another budget")
        elif not self.evaluation.is_on:
            yield Fault(path, "evaluation.every = 0, so no accuracy is measured", "let rounds be evaluated")
        elif self.data.task.kind != "classification":
            yield Fault(path, f"the task is a {self.data.task.kind}, without accuracy", "give another budget")
        elif self.until.of == "global" and not len(self.data.global_test):
            mend = "write data.global_test = 0.1, say, or of = 'personal_mean'"
            yield Fault("run.until.of", "there is no global test set", mend)

    def _per_class_misfits(self) -> Iterator[Fault]:
        if not self.evaluation.per_class:
            return
        path, task, mend = "evaluation.per_class", self.data.task, "leave it out"
        if not self.executor.learns:
            yield Fault(path, "nothing is learned, so nothing is evaluated", mend)
        elif not self.evaluation.is_on:
            yield Fault(path, "evaluation.every = 0, so nothing is evaluated", "let rounds be evaluated")
        elif task.kind != "classification":
            yield Fault(path, f"the task is a {task.kind}, without classes", mend)
        elif task.vocabulary == task.num_outputs:
            yield Fault(path, "labels are the next tokens of texts, and no classes", mend)

    def _schedule_misfits(self) -> Iterator[Fault]:
        for one in self.training.schedule:
            if one.by == "round" and one.needs_length and self.rounds is None:
                problem = f"{one.name!r} ends with the last round, and run.rounds does not say which that is"
                mend = "give it params.total_iters = 100, say, or write run.rounds"
                yield Fault("training.schedule", problem, mend)

    def _fault_misfits(self) -> Iterator[Fault]:
        names = self.fleet.names
        end_s = None if self.until is None else self.until.simulated
        if self.retry is not None and not any(one.kind in FATAL for one in self.faults):
            problem = "no fault of the network keeps a frame from arriving"
            yield Fault("participation.retry", problem, "add [[faults]], or leave it out")
        attacks = self.attacks
        lacking = iter([] if attacks is None else attacks.lacking)
        for number, config in enumerate(self.faults):
            if config.kind in ATTACKS and (some := next(lacking)):
                problem = f"it needs {some} more clients than there are without an attack"
                yield Fault(f"faults.{number}.share", problem, "write smaller shares")
            for name in config.groups:
                if name not in names:
                    problem = f"no client is of a group or label {quoted(name)}"
                    yield Fault(f"faults.{number}.groups", problem, nearest(name, names))
            if config.kind in ATTACKS and not self._sends_work():
                problem = f"clients of {name_of(self.algorithm)!r} send nothing that an attack could change"
                yield Fault(f"faults.{number}.kind", problem, "choose another algorithm, such as 'fedavg'")
            task = self.data.task
            if config.kind == "label_flip" and (task.kind != "classification" or task.vocabulary):
                problem = "labels are no classes here"
                yield Fault(f"faults.{number}.kind", problem, "write 'sign_flip', say")
            if end_s is not None and config.at >= end_s:
                problem = f"the run has ended by then, since run.until.simulated is {spell(end_s, 'time')}"
                yield Fault(f"faults.{number}.at", problem, "write an earlier time")

    def _sends_work(self) -> bool:
        """Say whether clients send models or predictions."""
        replies = [one.reply for one in self.algorithm.exchanges if one.reply is not None]
        return any(reply.PLAN.counted for reply in replies)

    def _aggregation_misfits(self) -> Iterator[Fault]:
        rule, path = name_of(self.aggregation), "aggregation"
        if not self.aggregation.is_robust:
            return
        if (why := self.algorithm.own_aggregation) is not None:
            problem = f"{rule!r} cannot serve {name_of(self.algorithm)!r}: {why}"
            yield Fault(path, problem, "write 'mean', or choose an algorithm such as 'fedavg'")
        size = self.pacing.merge_size(self.cohort_size) or self.cohort_size
        if problem := self.aggregation.fault(size):
            yield Fault(f"{path}.params", problem, "let more replies be merged at once, or write a smaller f")
        if self.pacing.discount(MAX_STALENESS) < self.pacing.discount(0):
            problem = f"{rule!r} counts all replies alike, and this staleness lets stale ones count less"
            yield Fault("participation.pacing.params.staleness", problem, "write 'constant'")

    def _edge_misfits(self) -> Iterator[Fault]:
        if self.edges is None:
            return
        algorithm, pacing, path = name_of(self.algorithm), name_of(self.pacing), "edge"
        mend = "leave [[edge]] out, or choose an algorithm such as 'fedavg'"
        if (why := self.algorithm.no_edges) is not None:
            yield Fault(path, f"edges average replies, and {algorithm!r} cannot do with that: {why}", mend)
        elif [(one.when, one.who) for one in self.algorithm.exchanges] != [("round", "cohort")]:
            problem = f"edges stand for the server in rounds of one exchange, and {algorithm!r} has others"
            yield Fault(path, problem, mend)
        if self.pacing.merge_size(self.cohort_size) is not None or not self.pacing.waits_for_all:
            problem = f"an edge waits for all of its clients, and {pacing!r} with these parameters does not"
            mend = "write 'synchronous' without over_selection and deadlines, or leave [[edge]] out"
            yield Fault("participation.pacing", problem, mend)
        if self.aggregation.is_robust:
            problem = f"{name_of(self.aggregation)!r} looks at the models of clients, and edges send means"
            yield Fault("aggregation", problem, "write 'mean', or leave [[edge]] out")
        if self.codec.is_on():
            yield Fault("codec", "edges do not code frames", "leave out [codec] or [[edge]]")
        if self.selector.asks:
            problem = f"{name_of(self.selector)!r} has clients asked by the server, and edges stand between"
            yield Fault("participation.selector", problem, "write 'uniform', or leave [[edge]] out")

    def _only_synchronous(self) -> str | None:
        """Return why the algorithm cannot be paced asynchronously, or None."""
        algorithm = self.algorithm
        in_round = [one for one in algorithm.exchanges if one.when == "round"]
        if len(in_round) != 1:
            return f"its round has {len(in_round)} exchanges"
        if in_round[0].who == "all":
            return "it asks all clients at once"
        if algorithm.discounted is None:
            return algorithm.new_replies_only or "it does not say what a stale reply counts"
        return None

    def _workload_misfits(self) -> Iterator[Fault]:
        if not self.workload.varies:
            return
        if (reason := self.algorithm.work_is_given) is not None:
            problem = f"{name_of(self.workload)!r} decides how long clients train, but in "
            problem += f"{name_of(self.algorithm)!r} {reason}"
            yield Fault("participation.workload", problem, "write 'fixed', or choose another algorithm")
            return
        links, clients = self.links(), np.flatnonzero(self._can_take_part())
        exchanges = [one for one in self.algorithm.exchanges if one.when == "round" and one.local is not None]
        always_replies = all(one.reply is not None for one in exchanges)

        coding = Effort.of([(1, Operations(message_codecs.least_flops(self)))])

        def reply_s(client: int) -> float:
            if not always_replies:
                return 0.0
            device = self.fleet.device(client)
            coding_s = duration_s(device, coding, device.mean_load) if coding.total.flops else 0.0
            return self.network.alone_s(links, client, SERVER, 0) + float(coding_s)

        devices = self.fleet, self.data, self.architectures, self.training, clients, reply_s
        yield from self.workload.misfits(self.training, partial(least_times_s, *devices))

    def initial(self) -> StartValues:
        """Return the start values of all architectures."""
        return StartValues(self.architectures, self.key.child("initial"))

    def needed_bytes(self, label: str) -> int:
        """Return the memory that training takes at a client (:mod:`fedsim.engine.memory_need`)."""
        return needed_bytes(self.architectures[label], self.training.batch_size, self.training)

    def holds_job(self) -> NDArray[np.bool_]:
        """Return which clients' devices have the memory to train their architecture, ``[K]``."""
        return self.fleet.values("memory") >= self._needs_bytes()

    def eligible(self) -> Array:
        """Return the clients that can take part, int32, ascending.

        They have something to train on (specification 3.5, E8), and the memory to do so.

        Raises:
            UserError: There are none.
        """
        has_samples = self.data.sizes("train") > 0
        if not has_samples.any():
            raise UserError(
                "no client has a training sample: give the data set more samples, or use fewer clients"
            )
        eligible = np.flatnonzero(self._can_take_part()).astype(np.int32)
        if not len(eligible):
            raise UserError(self._too_small(has_samples))
        return eligible

    def _can_take_part(self) -> NDArray[np.bool_]:
        able: NDArray[np.bool_] = (self.data.sizes("train") > 0) & self.holds_job()
        return able

    def _needs_bytes(self) -> NDArray[np.float64]:
        needs = np.empty(len(self.fleet))
        for group in self.fleet.groups:
            for label, own in group.shares():
                needs[group.start : group.stop][own] = self.needed_bytes(label)
        return needs

    def _too_small(self, has_samples: NDArray[np.bool_]) -> str:
        """Say by how much memory the devices of all clients with samples are too small."""
        memory, needs = self.fleet.values("memory"), self._needs_bytes()
        nearest = int(np.argmax(np.where(has_samples, memory / needs, -1.0)))
        need, have = (format_quantity(float(all_[nearest]), "data size") for all_ in (needs, memory))
        return (
            f"no client that has training samples can hold its job: training {self.fleet.model(nearest)!r} "
            f"with batches of {self.training.batch_size} needs {need}, the largest device has {have}; take a "
            "smaller model or batch, or devices with more memory"
        )


def _flipping_labels(rebuild: Callable[[], Resources], clients: Array) -> Resources:
    resources = rebuild()
    return resources.with_data(with_flipped_labels(resources.data, clients))


def _verifying(rebuild: Callable[[], Resources]) -> Resources:
    return replace(rebuild(), verify=True)
