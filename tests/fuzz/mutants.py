"""Faults that are planted in fedsim: each breaks a promise that the fuzzer checks.

Each function plants one with pytest's ``monkeypatch``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms import fedavg
from fedsim.algorithms.base import Reply
from fedsim.algorithms.common import model_rounds
from fedsim.bus import Delivery, Ledger, Outcome, memory
from fedsim.bus.memory import MemoryBus, _Transfer
from fedsim.engine.batched import run_together
from fedsim.engine.engine import DONE, Engine
from fedsim.engine.executors import threads
from fedsim.engine.jobs import ClientSamples
from fedsim.network.max_min_star import MaxMinStar
from fedsim.network.max_min_tree import MaxMinTree
from fedsim.params import Array
from fedsim.rng import SeededStream
from fedsim.runtime import evaluation
from fedsim.runtime.clients.host import ClientHost
from fedsim.runtime.clients.interrupted_work import Churn
from fedsim.runtime.evaluation import Observer
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.selectors.random_draws import Uniform
from fedsim.runtime.records import dispatch_table
from fedsim.runtime.records.dispatch_phases import AWAY
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.records.recorder import Recorder
from fedsim.runtime.server.actor import ServerActor
from fedsim.runtime.server.open_dispatches import DROP, OpenDispatch, OpenDispatches
from fedsim.runtime.told_losses import QUESTION
from fedsim.wire import field_types

Patch = pytest.MonkeyPatch


def lease_that_drops_nothing(patch: Patch) -> None:
    """The end of a lease is not counted: the dispatch has no end."""

    def expire(self: OpenDispatches, dispatch: OpenDispatch) -> None:
        if not dispatch.reply.done():
            dispatch.reply.set_result(None)

    patch.setattr(OpenDispatches, "_expire", expire)


def client_that_stays_busy(patch: Patch) -> None:
    """A client is not released when its dispatch ends, and is never asked again."""

    def release(self: OpenDispatches, dispatch: OpenDispatch) -> None:
        dispatch.released = True

    patch.setattr(OpenDispatches, "release", release)


def copy_that_is_delivered(patch: Patch) -> None:
    """The second copy of a reply is delivered too, and counts as late, although the first was merged."""
    arrived = _Transfer.arrived

    def arrive(self: _Transfer, parcel: Any) -> None:
        self._is_delivered &= not self.up
        arrived(self, parcel)

    patch.setattr(_Transfer, "arrived", arrive)


def copy_that_is_merged(patch: Patch) -> None:
    """Both copies of a reply are merged."""
    copy_that_is_delivered(patch)
    take, collect = OpenDispatches.take, ServerActor._collect

    def keep_copy(self: OpenDispatches, delivery: Delivery) -> None:
        header = delivery.header
        dispatch = self._open.get((header.sender, header.dispatch))
        if dispatch is None or not dispatch.reply.done():
            take(self, delivery)
        else:
            dispatch.abandoned = "twice"

    def collect_twice(self: ServerActor, exchange: Any, dispatches: Sequence[OpenDispatch]) -> list[Reply]:
        replies = collect(self, exchange, dispatches)
        twice = {(one.client, one.header.dispatch) for one in dispatches if one.abandoned == "twice"}
        return replies + [reply for reply in replies if (reply.client, reply.dispatch) in twice]

    patch.setattr(OpenDispatches, "take", keep_copy)
    patch.setattr(ServerActor, "_collect", collect_twice)


def late_reply_that_is_merged(patch: Patch) -> None:
    """A reply that comes after the end of its lease is merged with the next ones."""
    take, collect, late = OpenDispatches.take, ServerActor._collect, list[Reply]()

    def take_late(self: OpenDispatches, delivery: Delivery) -> None:
        header = delivery.header
        late.append(Reply(header.sender, header.dispatch, header.exchange, 0, 0, 1.0, delivery.message))

    def collect_late(self: ServerActor, exchange: Any, dispatches: Any) -> list[Reply]:
        replies = collect(self, exchange, dispatches)
        mine = [reply for reply in late if reply.exchange == exchange.name and reply.message is not None]
        late.clear()
        return sorted([*replies, *mine], key=lambda reply: reply.client)

    def take_any(self: OpenDispatches, delivery: Delivery) -> None:
        header = delivery.header
        is_late = (header.sender, header.dispatch) not in self._open and header.exchange != QUESTION
        (take_late if is_late else take)(self, delivery)

    patch.setattr(OpenDispatches, "take", take_any)
    patch.setattr(ServerActor, "_collect", collect_late)


def reply_that_is_lost(patch: Patch) -> None:
    """The last reply of a merge is left out, and nothing counts it."""
    collect = ServerActor._collect

    def collect_fewer(self: ServerActor, exchange: Any, dispatches: Sequence[OpenDispatch]) -> list[Reply]:
        replies = collect(self, exchange, dispatches)
        return replies[:2]

    patch.setattr(ServerActor, "_collect", collect_fewer)


def drop_that_is_not_told(patch: Patch) -> None:
    """A drop because of a lease is in no row of a round and in no line of the log."""
    dropped = Recorder._dropped

    def drop(self: Recorder, at_ns: int, client: int, dispatch: int, cause: str) -> None:
        if cause != "timeout":
            dropped(self, at_ns, client, dispatch, cause)

    patch.setattr(Recorder, "_dropped", drop)


def drop_at_an_earlier_instant(patch: Patch) -> None:
    """A drop is recorded at the instant at which its lease began."""

    def drop(self: OpenDispatches, dispatch: OpenDispatch, cause: str) -> None:
        row = dispatch.client, dispatch.header.dispatch, dispatch.abandoned or cause
        self._trace.repeat(DROP, (round(dispatch.sent_at_s * 1e9), *row))

    patch.setattr(OpenDispatches, "_drop", drop)


def round_that_counts_bytes_again(patch: Patch) -> None:
    """A round with a drop counts its bytes in the next one too."""
    end_round = Recorder.end_round

    def end(self: Recorder, *arguments: Any) -> None:
        before = self._before
        end_round(self, *arguments)
        if self.rows[-1].dropped:
            self._before = before

    patch.setattr(Recorder, "end_round", end)


def byte_too_many(patch: Patch) -> None:
    """The ledger counts one byte too many for a frame to the server."""
    sent = Ledger._sent_row

    def count(self: Ledger, at_ns: int, header: Any, up: bool, what: tuple[Any, ...]) -> bytes:
        kind, num_bytes, *others = what
        return sent(self, at_ns, header, up, (kind, num_bytes + up, *others))

    patch.setattr(Ledger, "_sent_row", count)


def frame_that_counts_twice(patch: Patch) -> None:
    """The ledger's totals count a frame to a client twice."""
    sent = Ledger._sent_row

    def count(self: Ledger, at_ns: int, header: Any, up: bool, what: Any) -> bytes:
        self._totals[up][0] += not up
        return sent(self, at_ns, header, up, what)

    patch.setattr(Ledger, "_sent_row", count)


def copy_that_ends_again(patch: Patch) -> None:
    """The second copy of a frame is recorded as another end of its transfer."""
    patch.setattr(memory, "TRANSFER_COPY", memory.TRANSFER_END)


def loss_that_is_not_recorded(patch: Patch) -> None:
    """The end of a frame that a fault has lost is in the ledger, and not in the trace."""
    record_end = MemoryBus.record_end

    def record(self: MemoryBus, header: Any, row: int, outcome: Outcome, cause: str = "") -> None:
        if cause == "loss":
            self.ledger.ended(0, row, outcome)
        else:
            record_end(self, header, row, outcome, cause)

    patch.setattr(MemoryBus, "record_end", record)


def retries_without_end(patch: Patch) -> None:
    """A frame is sent again until it arrives."""
    failed = MemoryBus.failed

    def forget(self: MemoryBus, transfer: _Transfer, *arguments: Any) -> None:
        transfer.num_failed = 0
        failed(self, transfer, *arguments)

    patch.setattr(MemoryBus, "failed", forget)


def job_without_an_end(patch: Patch) -> None:
    """The end of a job that is broken off is not recorded."""
    record_end = Engine.record_end

    def record(self: Engine, request: Any, job: Any, outcome: str = DONE) -> None:
        if outcome == DONE:
            record_end(self, request, job, outcome)

    patch.setattr(Engine, "record_end", record)


def job_that_ends_again(patch: Patch) -> None:
    """The end of a job that is broken off is recorded twice."""
    record_end = Engine.record_end

    def record(self: Engine, request: Any, job: Any, outcome: str = DONE) -> None:
        for _ in range(1 if outcome == DONE else 2):
            record_end(self, request, job, outcome)

    patch.setattr(Engine, "record_end", record)


def client_that_works_on(patch: Patch) -> None:
    """A client goes on with work that it was told to give up."""
    patch.setattr(ClientHost, "abandon", lambda self, client: None)


def level_that_is_not_told(patch: Patch) -> None:
    """What is left in a battery when work is given up is not recorded."""
    abandon = Churn._abandon

    def abandon_silently(self: Churn, client: int, cause: str) -> None:
        meter, self.meter = self.meter, None
        abandon(self, client, cause)
        self.meter = meter

    patch.setattr(Churn, "_abandon", abandon_silently)


def absence_without_an_end(patch: Patch) -> None:
    """A client that has returned counts as away until its dispatch ends."""

    def returned(self: DispatchTable, at_ns: int, client: int) -> None:
        self._away.discard(client)

    patch.setattr(DispatchTable, "_returned", returned)


def absence_that_begins_early(patch: Patch) -> None:
    """A client counts as away from an instant on at which it was still there."""

    def left(self: DispatchTable, at_ns: int, client: int, *_: Any) -> None:
        if client not in self._away:
            self._away.add(client)
            self._log_all(at_ns // 2, client, AWAY)

    patch.setattr(DispatchTable, "_left", left)


def times_of_32_bits(patch: Patch) -> None:
    """A time in a phase of more than 2 s is too large for the table of dispatches."""

    def add(times_ns: Array, spans: Array) -> None:
        np.add.at(times_ns, (spans[:, 0], spans[:, 1]), (spans[:, 3] - spans[:, 2]).astype(np.int32))

    patch.setattr(dispatch_table, "_add_spans", add)


def round_that_begins_early(patch: Patch) -> None:
    """Each round begins when the run does."""
    begin_round = Recorder.begin_round

    def begin(self: Recorder, number: int) -> None:
        begin_round(self, number)
        self._began_at_s = 0.0

    patch.setattr(Recorder, "begin_round", begin)


def memory_that_is_not_needed(patch: Patch) -> None:
    """Clients with too little memory to train can take part."""
    patch.setattr(Parts, "_can_take_part", lambda self: self.data.sizes("train") > 0)


def selector_that_chooses_twice(patch: Patch) -> None:
    """The last place in a cohort goes to a client that has one already."""
    select = Uniform.select

    def repeat(self: Any, *arguments: Any) -> Any:
        chosen = select(self, *arguments)
        chosen[-1:] = chosen[:1]
        return chosen

    patch.setattr(Uniform, "select", repeat)


def fast_path_without_absences(patch: Patch) -> None:
    """Cohorts that run beforehand take no notice of clients that leave."""
    patch.setattr(Churn, "stays", lambda *_: True)


def fast_path_without_crashes(patch: Patch) -> None:
    """Cohorts that run beforehand take no notice of crashes."""
    stays = Churn.stays

    def stay(self: Churn, *arguments: Any) -> bool:
        crashes, values = self.parts.crashes, vars(self.parts)
        values["crashes"] = None
        try:
            return stays(self, *arguments)
        finally:
            values["crashes"] = crashes

    patch.setattr(Churn, "stays", stay)


def sums_in_the_order_of_workers(patch: Patch) -> None:
    """Replies are merged in another order with an even number of workers."""
    collect = ServerActor._collect

    def collect_in_order(self: ServerActor, exchange: Any, dispatches: Any) -> list[Reply]:
        replies = collect(self, exchange, dispatches)
        return replies[:: 1 if self.parts.executor.config.workers % 2 else -1]

    patch.setattr(ServerActor, "_collect", collect_in_order)


def batches_of_the_fit_before(patch: Patch) -> None:
    """The order of batches goes on from the fit before, in place of the fit's own seed."""
    start = SeededStream.start

    def start_once(self: SeededStream, seed: int) -> None:
        if not self._key[0]:
            start(self, seed)

    patch.setattr(SeededStream, "start", start_once)


def results_of_another_place(patch: Patch) -> None:
    """Of jobs that are done together, the first two get each other's results."""
    together = run_together.run_together

    def swapped(jobs: Sequence[Any], worker: Any) -> Any:
        results, ways = together(jobs, worker)
        if len(results) > 1 and not worker.resources.verify:
            results[:2] = results[1::-1]
        return results, ways

    patch.setattr(threads, "run_together", swapped)


def merge_that_changes_its_replies(patch: Patch) -> None:
    """A mean sorts the list of replies that the hook was given."""
    mean = model_rounds.mean_of_models

    def sort(replies: Any, weighting: Any) -> Any:
        replies.reverse()
        return mean(replies, weighting)

    patch.setattr(fedavg, "mean_of_models", sort)


def link_beyond_its_capacity(patch: Patch) -> None:
    """Transfers that share the server's link are faster than it is."""
    solve = MaxMinStar._solve

    def solve_too_fast(self: MaxMinStar) -> None:
        solve(self)
        self._theta_bps *= 1.01

    patch.setattr(MaxMinStar, "_solve", solve_too_fast)


def flow_that_ends_early(patch: Patch) -> None:
    """A transfer ends when its last kilobyte is still to go."""
    add = MaxMinStar.add

    def add_less(self: MaxMinStar, flow: Any, size_bits: float, *arguments: Any) -> None:
        add(self, flow, max(1.0, size_bits - 8000), *arguments)

    patch.setattr(MaxMinStar, "add", add_less)


def cells_beyond_the_servers_capacity(patch: Patch) -> None:
    """Flows of cells that are not full are faster together than the server's link."""
    solve = MaxMinTree._solve

    def solve_too_fast(self: MaxMinTree) -> None:
        solve(self)
        self._theta_bps *= 1.01

    patch.setattr(MaxMinTree, "_solve", solve_too_fast)


def number_that_is_received_otherwise(patch: Patch) -> None:
    """A number of a message in memory is not the one that its frame holds."""
    received = field_types._Float.received
    patch.setattr(field_types._Float, "received", lambda self, value: received(self, value) / 3)


def evaluation_of_the_wrong_rounds(patch: Patch) -> None:
    """Evaluations are counted from the first round on, in place of the round before it."""
    is_evaluated = ServerActor._is_evaluated

    def is_due(self: ServerActor) -> bool:
        self._round -= 1
        try:
            return is_evaluated(self)
        finally:
            self._round += 1

    patch.setattr(ServerActor, "_is_evaluated", is_due)


def evaluation_of_other_clients(patch: Patch) -> None:
    """The clients that are measured are other ones each time."""
    note = Observer.note

    def turn(self: Observer, accuracy: Any, number: int) -> None:
        note(self, accuracy, number)
        population = self.parts.data.num_clients
        vars(self)["clients"] = sorted((client + 1) % population for client in self.clients)

    patch.setattr(Observer, "note", turn)


def evaluation_on_training_samples(patch: Patch) -> None:
    """Clients are measured on what they have learned from."""
    patch.setattr(evaluation, "ClientSamples", lambda client, split: ClientSamples(client, "train"))


def late_reply_that_is_not_logged(patch: Patch) -> None:
    """A reply that comes late is in no line of the log."""
    patch.setattr(Recorder, "_came_late", lambda *_: None)
