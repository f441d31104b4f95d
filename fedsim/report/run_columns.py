"""The tables of a run and of a comparison, and what each of their columns means.

*Up* is towards the server. ``bytes_*`` are frames of messages, ``data_*`` frames that carry raw samples, and
neither is part of the other. What is null, or empty in a CSV file, was not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fedsim.data import SPLITS
from fedsim.fleet.device import Quantity
from fedsim.fleet.power import ALL_QUANTITIES
from fedsim.report.columns import NUMBER, Column, Table, count, flag, joules, number, seconds, size, word
from fedsim.units import base_unit

loss = partial(Column, "float64", "nat, or the target's unit squared")
"""A cross-entropy, or the squared error of a regression."""


def _both_ways(name: str, column: Callable[[str], Column], description: str) -> dict[str, Column]:
    ways = {"up": "to the server", "down": "to clients"}
    return {f"{name}_{way}": column(description.format(to=to)) for way, to in ways.items()}


ROUND = Column(
    "int32",
    NUMBER,
    "Number of the round; 0 is what comes before the first, one more than the last what comes after it.",
)

OUTCOMES = {
    "asked": Column("int32", NUMBER, "Dispatches to clients."),
    "merged": Column("int32", NUMBER, "Replies that were merged."),
    "dropped": Column("int32", NUMBER, "Dispatches without a reply in time."),
    "rejected": Column("int32", NUMBER, "Replies that could not be merged."),
    "late": Column("int32", NUMBER, "Replies that came after their dispatch was dropped."),
}

FRAMES = _both_ways("frames", count, "Frames sent {to}.")
BYTES = _both_ways("bytes", size, "Length of the frames sent {to}, without those of raw samples.")
PARAMETERS = _both_ways("parameters", count, "Model parameters, or other scalars, sent {to}.")
DATA = _both_ways("data", size, "Length of the frames sent {to} that carry raw samples.")
OVERHEAD = _both_ways("overhead", size, "What protocols add to the frames sent {to}.")
PLAIN = _both_ways(
    "bytes_plain",
    size,
    "Length that the frames sent {to}, without those of raw samples, would have without codecs.",
)
TRAFFIC = FRAMES | BYTES | PARAMETERS | DATA | OVERHEAD | PLAIN
"""Sums over frames: the names are those of :class:`fedsim.bus.Totals`."""

SENT = (*BYTES, *DATA)
"""Columns that sum to the bytes of all frames."""

SUMMED = BYTES | PARAMETERS | DATA
"""What ``rounds`` also gives as the sum since the start of the run."""

PHASES = {
    "download_s": "Time of downloading",
    "compute_s": "Time of computing",
    "upload_s": "Time of uploading",
    "away_s": "Time in which work stood still because the client was away",
    "waiting_s": "Rest of the time from sending to the end, such as waiting for other work of the client",
}
"""What dispatches spend virtual time on: :mod:`fedsim.runtime.records.dispatch_table`."""

SPENT = {
    **{name: seconds(f"{words}, summed over dispatches.") for name, words in PHASES.items()},
    "wasted_s": seconds("Time of downloading, computing and uploading for replies that were not merged."),
}
"""Sums over dispatches: :mod:`fedsim.report.cost_breakdown`."""

ENERGY = {
    "compute_j": joules("Energy of computing."),
    "receive_j": joules("Energy of receiving."),
    "transmit_j": joules("Energy of transmitting."),
    "tail_j": joules("Energy of the radio after transfers."),
    "idle_j": joules("Energy of waiting within dispatches."),
}
"""What dispatches cost under ``energy``, as :mod:`fedsim.report.energy` estimates it."""

SERVER_ENERGY = joules("Energy of the server.")
CARBON = Column(
    "float64", "g", "CO2 of the energy of clients and server, where the carbon intensity is given."
)

WASTED_BYTES = size("Length of frames that were lost, or were for a reply that was not merged.")
DROPPED = Column("int32", NUMBER, "Dispatches without a reply in time, with the cause <cause>.")

_OWN = "on the clients' own samples"
_GLOBAL = "of the global model on the global test set"
_WORST = "mean over the least accurate tenth of clients"

MEASURED = {
    "accuracy_mean": number(f"Accuracy {_OWN}, mean over clients."),
    "accuracy_std": number(f"Accuracy {_OWN}, standard deviation over clients."),
    "accuracy_worst_decile": number(f"Accuracy {_OWN}, {_WORST}."),
    "accuracy_weighted_mean": number(f"Accuracy {_OWN}, mean over clients weighted by their samples."),
    "accuracy_global": number(f"Accuracy {_GLOBAL}."),
    "loss_mean": loss(f"Loss {_OWN}, mean over clients."),
    "loss_std": loss(f"Loss {_OWN}, standard deviation over clients."),
    "loss_global": loss(f"Loss {_GLOBAL}."),
}

STALE = "Merges between a dispatch and the merge of its reply"
STALENESS = {
    "staleness_mean": number(f"{STALE}, mean over the replies merged."),
    "staleness_max": count(f"{STALE}, largest of the replies merged."),
}

ROUNDS = Table(
    "rounds",
    "rounds.parquet",
    "One row for each round, one for what came before the first, if anything did or was measured, and one "
    "for what came after the last, if anything did. Rows sum to the totals of the run. Time and waste of a "
    "dispatch count in the round in which it was sent, whenever it ended. Frames count in the round in "
    "which they were put on the link.",
    {
        "round": ROUND,
        "began_at_s": seconds("Virtual time at the start of the round."),
        "ended_at_s": seconds("Virtual time at the end of the round."),
        **OUTCOMES,
        **TRAFFIC,
        **{
            f"cumulative_{name}": Column("int64", column.unit, f"Sum of {name} since the start of the run.")
            for name, column in SUMMED.items()
        },
        **SPENT,
        "wasted_bytes": WASTED_BYTES,
        "dropped_<cause>": DROPPED,
        **ENERGY,
        "server_j": SERVER_ENERGY,
        "carbon_g": CARBON,
        "merges": Column("int32", NUMBER, "Merges of rounds' exchanges."),
        **STALENESS,
        "concurrency_mean": number("Dispatches under way, mean over the time of the round."),
        **MEASURED,
    },
)


def _quantity(quantity: Quantity) -> Column:
    dimension = quantity.spread.dimension
    unit = NUMBER if dimension is None else base_unit(dimension)
    return Column("float64", unit, " ".join(quantity.doc.split()))


LABEL = word("Label of the client's device: that of its row in a fleet file, or else its group's.")

CLIENTS = Table(
    "clients",
    "clients.parquet",
    "One row for each client of the population, selected or not.",
    {
        "client": count("Number of the client, from 0."),
        "group": word("Label of the client's group in the fleet."),
        "label": LABEL,
        "model": word("Label of the client's architecture."),
        **{quantity.attribute: _quantity(quantity) for quantity in ALL_QUANTITIES.values()},
        **{f"num_{split}": count(f"The client's samples of the split {split}.") for split in SPLITS},
        **OUTCOMES,
        **TRAFFIC,
        **SPENT,
        "wasted_bytes": WASTED_BYTES,
        "dropped_<cause>": DROPPED,
        **ENERGY,
        "accuracy": number("Accuracy on the client's own samples, of the last evaluation."),
        "loss": loss("Loss on the client's own samples, of the last evaluation."),
        "cell": word("Name of the client's cell, in a run with cells."),
        "attack": word("Kind of the attack that the client makes, in a run with attackers."),
        "battery_level": number("Share that is left in the client's battery, in a run with batteries."),
    },
)

MEASURED_ROUND = Column(
    "int32", NUMBER, "Number of the round at whose end it was measured; 0 is before the first."
)

CLIENT_CLASSES = Table(
    "client_classes",
    "client_classes.parquet",
    "Of a classification: one row for each client and each class of which it has training samples, in this "
    "order.",
    {
        "client": count("Number of the client."),
        "class": count("Number of the class."),
        "class_name": word("Name of the class; its number, where it has none."),
        "num_samples": count("The client's training samples of the class."),
    },
)

EVALUATIONS = Table(
    "evaluations",
    "evaluations.parquet",
    "One row for each evaluation and client that was measured.",
    {
        "round": MEASURED_ROUND,
        "client": count("Number of the client."),
        "accuracy": number("Accuracy on the client's own samples, of the model that stands for it."),
        "loss": loss("Loss on the client's own samples, of the model that stands for it."),
        "num_samples": count("The client's samples that were measured."),
    },
)

DISPATCHES = Table(
    "dispatches",
    "dispatches.parquet",
    "One row for each dispatch to a client, in the order of sending: where its time went, and how it ended.",
    {
        "client": Column("int32", NUMBER, "Number of the client."),
        "dispatch": Column("int32", NUMBER, "Number among the dispatches to this client, from 0."),
        "round": ROUND,
        "exchange": word("Name of the algorithm's exchange."),
        "asked_at_s": seconds("Virtual time of the sending."),
        "ended_at_s": seconds("Virtual time of the last thing that happened to the dispatch."),
        **{name: seconds(f"{words}.") for name, words in PHASES.items()},
        "outcome": word("What became of the dispatch: merged, dropped, rejected or late."),
        "cause": word("Why the dispatch was dropped; null if it was not."),
        "version": Column("int32", NUMBER, "Merges of rounds before the dispatch."),
        "staleness": Column("int32", NUMBER, f"{STALE}; null if it was not merged by a round."),
        "label": LABEL,
        **ENERGY,
    },
)

MESSAGES = Table(
    "messages",
    "messages.parquet",
    "One row for each frame, in the order of sending.",
    {
        "round": replace(
            ROUND,
            description="Number of the round in which the frame's dispatch was sent. A reply that is sent "
            "after the end of this round counts in the row of a later round in rounds.",
        ),
        "client": count("Number of the client that sent the frame or was to receive it."),
        "dispatch": Column("int32", NUMBER, "Number of the dispatch among those to this client, from 0."),
        "exchange": word("Name of the algorithm's exchange."),
        "kind": word("Kind of the message."),
        "up": flag("Whether the frame was sent to the server."),
        "data": flag("Whether the frame carries raw samples."),
        "bytes": size("Length of the frame."),
        "bytes_plain": size("Length that the frame would have without codecs."),
        "parameters": count("Model parameters, or other scalars, in the frame."),
        "overhead": size("What protocols add to the frame on the link."),
        "arrivals": Column("int32", NUMBER, "Copies of the frame that arrived, decodable or not."),
        "outcome": word("What became of the frame: delivered, undecodable, lost or in_flight."),
        "sent_at_s": seconds("Virtual time at which the frame was put on the link."),
        "arrived_at_s": seconds("Virtual time at which the last byte arrived; null if it did not."),
    },
)

EDGE_MESSAGES = Table(
    "edge_messages",
    "edge_messages.parquet",
    "One row for each frame between an edge and the server, in the order of sending, in a run with edges. "
    "They are no part of messages, and count in no other table.",
    {
        "round": ROUND,
        "edge": word("Name of the edge's cell."),
        "kind": word("Kind of the message."),
        "up": flag("Whether the frame was sent to the server."),
        "bytes": size("Length of the frame."),
        "parameters": count("Model parameters in the frame."),
        "overhead": size("What protocols add to the frame on the link."),
        "outcome": word("What became of the frame: delivered, or lost where the run ended before."),
        "sent_at_s": seconds("Virtual time at which the frame was put on its links."),
        "arrived_at_s": seconds("Virtual time at which the last byte arrived; null if it did not."),
    },
)

_SET = {
    "round": MEASURED_ROUND,
    "test_set": word("Test set: clients for the own samples of all measured clients, or global."),
}

CLASSES = Table(
    "classes",
    "classes.parquet",
    "Under evaluation.per_class: one row for each evaluation, test set and class that has samples there or "
    "is predicted.",
    {
        **_SET,
        "class": count("Number of the class."),
        "class_name": word("Name of the class; its number, where it has none."),
        "num_samples": count("Samples of the class."),
        "num_predicted": count("Samples that were taken for the class."),
        "num_correct": count("Samples of the class that were taken for it."),
        "recall": number("Share of the samples of the class that were taken for it: its accuracy."),
        "precision": number("Share of the samples taken for the class that are of it."),
        "f1": number("Harmonic mean of recall and precision."),
    },
)

CONFUSION = Table(
    "confusion",
    "confusion.parquet",
    "Under evaluation.per_class: one row for each evaluation, test set, true class and predicted class.",
    {
        **_SET,
        "true_class": count("Number of the class that the samples are of."),
        "predicted_class": count("Number of the class that they were taken for."),
        "num_samples": count("How many samples these are."),
    },
)


def _wide(column: Column) -> Column:
    return replace(column, type="int64")


COMPARISON = Table(
    "comparison",
    "comparison.csv",
    "One row for each run of a comparison: its summary, as in summary.json.",
    {
        "fedsim": word("Version of fedsim."),
        "scenario": word("Name of the scenario."),
        "algorithm": word("Name of the algorithm."),
        "seed": count("Seed of the run."),
        "rounds": count("Rounds that were begun."),
        "stopped_by": word("The budget that ended the rounds, if one did."),
        "clients": count("Clients of the population."),
        "ineligible_count": count("Clients that are never selected."),
        "ineligible_clients": word("Numbers of the first clients that are never selected."),
        "ineligible_reason": word("Why clients are never selected: memory is too little."),
        "simulated_s": seconds("Virtual time at the end; over sockets, the real time."),
        "wall_s": seconds("Real time that the run took."),
        **BYTES,
        **PLAIN,
        **DATA,
        **FRAMES,
        **PARAMETERS,
        "accuracy_personal_mean": number(f"Last accuracy {_OWN}, mean over clients."),
        "accuracy_personal_std": number(f"Last accuracy {_OWN}, standard deviation over clients."),
        "accuracy_personal_worst_decile": number(f"Last accuracy {_OWN}, {_WORST}."),
        "accuracy_global": number(f"Last accuracy {_GLOBAL}."),
        "accuracy_best": number(f"Highest accuracy {_OWN}, mean over clients."),
        "accuracy_best_global": number(f"Highest accuracy {_GLOBAL}."),
        "accuracy_others": Column("", NUMBER, "Last accuracies of what the algorithm evaluates beside."),
        "loss_personal_mean": loss(f"Last loss {_OWN}, mean over clients."),
        "loss_personal_std": loss(f"Last loss {_OWN}, standard deviation over clients."),
        "loss_global": loss(f"Last loss {_GLOBAL}."),
        "loss_best": loss(f"Lowest loss {_OWN}, mean over clients."),
        "drops": _wide(OUTCOMES["dropped"]),
        "rejected": _wide(OUTCOMES["rejected"]),
        "rejected_by_reason_<reason>": count("Replies that could not be merged for the reason <reason>."),
        "finite": flag("Whether all models and losses at the end are finite."),
        "divergence": word("In what way the run has diverged, if it has."),
        "trace_hash": word("Fingerprint of the trace."),
        "model_hash": word("Digest of the models at the end."),
        **{f"time_{name}": column for name, column in SPENT.items()},
        "bytes_payload_up": size("Length of all frames sent to the server."),
        "bytes_payload_down": size("Length of all frames sent to clients."),
        **{f"bytes_{name}": column for name, column in OVERHEAD.items()},
        "bytes_wasted": WASTED_BYTES,
        "drops_by_cause_<cause>": _wide(DROPPED),
        "energy_<part>_j": joules("Energy, where it is computed: <part>."),
        "energy_<part>_g": Column("float64", "g", "CO2 of the energy of clients and server: <part>."),
        "faults_<kind>": count("Faults of the kind <kind>."),
        "edges_bytes_<way>": size("Length of all frames between edges and the server, <way>."),
        "edges_overhead_<way>": size("What protocols add to these frames, <way>."),
        "edges_at_server_<way>": size("Length of all frames over the server's link, with edges: <way>."),
        "edges_<what>": count("Of edges, their number (count), how many means they took, or frames: <what>."),
        **{f"participation_{name}": _wide(column) for name, column in OUTCOMES.items()},
        "participation_clients_asked": count("Clients that were asked at least once."),
        "participation_clients_merged": count("Clients of whom a reply was merged."),
        "wasted_work": number("Share of the time of work that was wasted."),
        "wasted_payload": number("Share of the length of all frames that was wasted."),
        "staleness_mean": STALENESS["staleness_mean"],
        "staleness_p99": count(f"{STALE}, not exceeded by 99 % of the replies merged."),
        "staleness_max": STALENESS["staleness_max"],
        "concurrency_mean": number("Dispatches under way, mean over virtual time."),
        "concurrency_max": count("Dispatches under way, most at once."),
        "merges": count("Merges of rounds' exchanges."),
        "macro_f1_<test_set>": number("Last mean over classes of their F1 on the test set <test_set>."),
        "merges_per_hour": Column(
            "float64", "1/h", "Merges of rounds' exchanges in an hour of virtual time."
        ),
        "codec_saturated": count("Values beyond the range of a codec, which became its largest number."),
    },
)

RUN_TABLES = {
    table.name: table
    for table in (
        *(ROUNDS, CLIENTS, CLIENT_CLASSES, EVALUATIONS, DISPATCHES, MESSAGES),
        *(CLASSES, CONFUSION, EDGE_MESSAGES),
    )
}
"""Those in the folder of a run, by name."""
