"""A prediction, held against a run over sockets: ``fedsim validate``.

Both runs have the same scenario, algorithm and seed, so their dispatches have the same names: client and
number. Errors are relative to the prediction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import OutputError
from fedsim.params import Array
from fedsim.report import number_format
from fedsim.report.atomic_folder import write_file
from fedsim.report.cost_breakdown import Columns
from fedsim.report.places import VALIDATION
from fedsim.report.read_parquet import read_columns
from fedsim.report.read_results import read_checked, read_object, read_scenario, to_json
from fedsim.report.summary import read_summary
from fedsim.report.text_table import TextTable
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.runtime.sockets.emulate import rounded

MAX_MEDIAN, MAX_LATE_QUANTILE = 0.02, 0.05
"""Errors of the duration of rounds up to which a prediction agrees: the median, and the 95th percentile."""
MAX_LATE = 0.05
"""The share of dispatches with which the host may be late; of their time altogether it is ``MAX_MEDIAN``."""
MAX_COMPUTE = 0.15
"""The median error of the time of computing up to which a prediction agrees with a run without emulation."""
APART = 0.05
"""Algorithms are ranked whose predicted times differ by more than this share."""

_COLUMNS = ("client", "dispatch", "round", "asked_at_s", "outcome", *(f"{phase}_s" for phase in PHASES))


@dataclass(frozen=True, eq=False)
class Validation:
    """How well one run was predicted.

    Attributes:
        algorithm: What was run.
        predicted_s: The predicted time of all rounds, s.
        real_s: Their time over sockets, s; in emulated time, if that runs faster or slower.
        round_errors: Of the duration of each round, ``[rounds]``; under a pacing that is not synchronous, in
            which rounds are no more than counts of replies, of the instant at which each has ended.
        clients: Who has replied, ``[dispatches]``.
        arrivals: When each reply arrived, s: predicted and real, ``[2, dispatches]``.
        phases: Time in each phase, summed over these dispatches, s: predicted and real.
        compute_errors: Of the time of computing of each dispatch, ``[dispatches]``.
        tau: Kendall's tau of the order of arrivals within rounds.
        num_unmatched: Dispatches with a reply in one of both runs alone.
        num_bytes: Bytes of frames, up and down: predicted and real.
        has_same_models: Whether both have ended with the same models.
        needs_same_models: Whether they have to: rounds are synchronous, no reply was lost, and the same
            clients were asked.
        num_rounds: Predicted and real.
        emulation: What is said of the host (:class:`fedsim.runtime.sockets.emulate.Lateness`); None of a run
            without emulation.
    """

    algorithm: str
    predicted_s: float
    real_s: float
    round_errors: Array
    clients: Array
    arrivals: Array
    phases: Mapping[str, tuple[float, float]]
    compute_errors: Array
    tau: float
    num_unmatched: int
    num_bytes: tuple[int, int]
    has_same_models: bool
    needs_same_models: bool
    num_rounds: tuple[int, int]
    emulation: Mapping[str, float] | None

    @property
    def error(self) -> float:
        """Of the time of all rounds."""
        return self.real_s / self.predicted_s - 1

    @property
    def late(self) -> float:
        """The share of dispatches with which the host was late."""
        emulation = self.emulation
        return emulation["num_late"] / max(1, emulation["num_dispatches"]) if emulation else 0.0

    @property
    def late_time(self) -> float:
        """The share of the time of dispatches by which the host was late."""
        real_s = sum(real for _, real in self.phases.values())
        return self.emulation["late_s"] / real_s if self.emulation and real_s else 0.0

    @property
    def is_late(self) -> bool:
        """Whether the host has not kept up, so that nothing can be said."""
        return self.late > MAX_LATE or self.late_time > MAX_MEDIAN

    def disagreements(self) -> Iterator[str]:
        """Yield in what the prediction disagrees with the run, in words."""
        if self.emulation is None:
            median = float(np.median(self.compute_errors)) if len(self.compute_errors) else 0.0
            if median > MAX_COMPUTE:
                yield f"computing: median error {_percent(median)}, at most {_percent(MAX_COMPUTE)}"
        else:
            for name, quantile, most in (("median", 0.5, MAX_MEDIAN), ("95th", 0.95, MAX_LATE_QUANTILE)):
                found = self.round_error(quantile)
                if found > most:
                    yield f"rounds: {name} error {_percent(found)}, at most {_percent(most)}"
        if self.num_rounds[0] != self.num_rounds[1]:
            yield f"rounds: {self.num_rounds[0]} predicted, {self.num_rounds[1]} real"
        if self.needs_same_models and self.num_bytes[0] != self.num_bytes[1]:
            yield f"bytes: {self.num_bytes[0]} predicted, {self.num_bytes[1]} sent"
        if self.needs_same_models and not self.has_same_models:
            yield "the models at the end are others"

    def round_error(self, quantile: float) -> float:
        """Return a quantile of the errors of rounds, without their signs."""
        return float(np.quantile(np.abs(self.round_errors), quantile)) if len(self.round_errors) else 0.0

    def verdict(self) -> str:
        """Return the verdict in words."""
        if self.is_late:
            return "no verdict"
        return "disagrees" if any(self.disagreements()) else "agrees"

    def advice(self) -> str | None:
        """Return what to do where the host has not kept up."""
        if self.emulation is None or not self.is_late:
            return None
        emulation = self.emulation
        shares = MAX_LATE / max(emulation["worst"], 1e-9), MAX_MEDIAN / max(self.late_time, 1e-9)
        slower = emulation["speed_up"] * min(0.5, *shares)
        count, worst = emulation["num_dispatches"], _percent(emulation["worst"])
        return (
            f"{self.algorithm}: the host was late with {emulation['num_late']:g} of {count:g} dispatches, "
            f"with the worst by {worst} of its time, and by {_percent(self.late_time)} of all their time, so "
            f"nothing can be said: give --speed-up {rounded(slower)}, end other programs, or validate a "
            "scenario whose devices are slower"
        )


def compare(predicted: Path, real: Path) -> Validation:
    """Return how well the run of one folder predicts that of another; an OutputError if it cannot be told."""
    summaries = [read_summary(folder) for folder in (predicted, real)]
    rounds = [
        read_columns(folder / "rounds.parquet", ("began_at_s", "ended_at_s")) for folder in (predicted, real)
    ]
    dispatches = [_replies(folder) for folder in (predicted, real)]
    matched, num_unmatched = _matched(*dispatches)
    if not matched:
        raise OutputError(f"{real} and {predicted} have no reply in common: nothing can be compared")
    first, second = (
        {name: column[list(places)] for name, column in one.items()}
        for one, places in zip(dispatches, zip(*matched, strict=True), strict=True)
    )
    arrivals = np.stack([_arrived_s(first), _arrived_s(second)])
    pacing = read_scenario(predicted)["participation"]["pacing"]["name"]
    # Where others are asked than was predicted, rounds are no longer the same rounds.
    is_synchronous = pacing == "synchronous" and not num_unmatched
    lasted = [one["ended_at_s"] - one["began_at_s"] * is_synchronous for one in rounds]
    num_rounds = min(map(len, lasted))
    before, after = (its[:num_rounds] for its in lasted)
    has_time = before > 0
    lost = any(one["drops"] or one["rejected"] for one in summaries)
    return Validation(
        summaries[0]["algorithm"],
        float(rounds[0]["ended_at_s"][-1]),
        float(rounds[1]["ended_at_s"][-1]),
        _errors(before[has_time], after[has_time]),
        first["client"],
        arrivals,
        {phase: (float(first[f"{phase}_s"].sum()), float(second[f"{phase}_s"].sum())) for phase in PHASES},
        np.abs(_errors(*(one["compute_s"][first["compute_s"] > 0] for one in (first, second)))),
        _tau(first["round"], *arrivals),
        num_unmatched,
        (_sent(summaries[0]), _sent(summaries[1])),
        summaries[0]["model_hash"] == summaries[1]["model_hash"],
        is_synchronous and not lost,
        (len(lasted[0]), len(lasted[1])),
        summaries[1].get("emulation"),
    )


def ranking(validations: Sequence[Validation]) -> tuple[float, int]:
    """Return Kendall's tau of algorithms by time, and how many pairs it counts: those that are apart.

    Runs of which nothing can be said do not count.
    """
    pairs = [
        (one, other)
        for one, other in combinations([one for one in validations if not one.is_late], 2)
        if abs(one.predicted_s - other.predicted_s) > APART * min(one.predicted_s, other.predicted_s)
    ]
    agree = [(one.predicted_s < other.predicted_s) == (one.real_s < other.real_s) for one, other in pairs]
    return (2 * sum(agree) / len(pairs) - 1 if pairs else 1.0), len(pairs)


def tables(validations: Sequence[Validation]) -> list[TextTable]:
    """Return tables: how well runs were predicted, and where their time went."""
    notes = [
        f"errors of rounds: {_percent(MAX_MEDIAN)} in the median and {_percent(MAX_LATE_QUANTILE)} at the "
        "95th percentile are allowed; tau: Kendall's, of the order in which replies arrived in rounds; "
        "unmatched replies: those of one run alone; late: dispatches with which the host was late"
    ]
    tau, num_pairs = ranking(validations)
    if num_pairs:
        apart = number_format.several(num_pairs, "pair")
        notes.append(
            f"ranking of algorithms by time: tau {tau:.2f} over {apart} more than {_percent(APART)} apart"
        )
    answer = TextTable.of(
        validations,
        {
            "algorithm": lambda one: one.algorithm,
            "predicted": lambda one: number_format.duration(one.predicted_s),
            "real": lambda one: number_format.duration(one.real_s),
            "error": lambda one: _signed(one.error),
            "rounds\nmedian": lambda one: _percent(one.round_error(0.5)),
            "rounds\n95th": lambda one: _percent(one.round_error(0.95)),
            "tau": lambda one: f"{one.tau:.3f}",
            "unmatched\nreplies": lambda one: str(one.num_unmatched),
            "bytes": lambda one: "equal" if one.num_bytes[0] == one.num_bytes[1] else "differ",
            "models": lambda one: "equal" if one.has_same_models else "differ",
            "late": lambda one: _percent(one.late) if one.emulation else number_format.NOTHING,
            "verdict": Validation.verdict,
        },
        title="predicted and real",
        notes=notes,
        text_columns=frozenset({0, 8, 9, 11}),
    )
    rows = [
        (one.algorithm, phase, *map(number_format.duration, both), number_format.duration(both[1] - both[0]))
        for one in validations
        for phase, both in one.phases.items()
        if any(both)
    ]
    phases = TextTable(
        ("algorithm", "phase", "predicted", "real", "more"),
        rows,
        title="time of clients by phase, summed over dispatches",
        text_columns=frozenset({0, 1}),
    )
    return [answer, phases]


def write(folder: Path, runs: Mapping[str, Sequence[str]]) -> None:
    """Write which folders hold the predicted and the real run of each algorithm."""
    write_file(folder / VALIDATION, to_json({algorithm: list(pair) for algorithm, pair in runs.items()}))


def read(folder: Path) -> list[Validation]:
    """Return what a folder of a validation shows."""
    runs = read_object(folder / VALIDATION)
    return read_checked(
        folder / VALIDATION,
        lambda _: [compare(folder / predicted, folder / real) for predicted, real in runs.values()],
    )


def runs(folder: Path) -> list[str]:
    """Return the names of the folders of all runs of a validation."""
    return [name for pair in read_object(folder / VALIDATION).values() for name in pair]


def sentence(validations: Sequence[Validation]) -> str:
    """Return the answer in a sentence."""
    verdicts = Counter(one.verdict() for one in validations)
    counted = f"{verdicts['agrees']} of {number_format.several(len(validations), 'prediction')} agreed"
    if unknown := verdicts["no verdict"]:
        counted += f", and of {unknown} nothing can be said"
    worst = max(validations, key=lambda one: abs(one.error))
    return f"{counted}. The largest error of a run's time is {_signed(worst.error)} ({worst.algorithm})."


def remarks(validations: Sequence[Validation]) -> Iterator[str]:
    """Yield in what predictions disagree, and what to do where nothing can be said."""
    for one in validations:
        if (advice := one.advice()) is not None:
            yield advice
        else:
            yield from (f"{one.algorithm}: {words}" for words in one.disagreements())


def _sent(summary: Mapping[str, Any]) -> int:
    return sum(summary[name] for name in ("bytes_up", "bytes_down", "data_up", "data_down"))


def _replies(folder: Path) -> Columns:
    """Return the dispatches with a reply that was merged, sorted."""
    columns = read_columns(folder / "dispatches.parquet", _COLUMNS)
    (rows,) = np.nonzero(columns["outcome"] == "merged")
    order = rows[np.lexsort((columns["dispatch"][rows], columns["client"][rows]))]
    return {name: column[order] for name, column in columns.items()}


def _matched(first: Columns, second: Columns) -> tuple[list[tuple[int, int]], int]:
    """Return the places of dispatches in both, and how many are in one alone."""
    keys = [
        list(zip(one["client"].tolist(), one["dispatch"].tolist(), strict=True)) for one in (first, second)
    ]
    places = {key: place for place, key in enumerate(keys[1])}
    pairs = [(place, places[key]) for place, key in enumerate(keys[0]) if key in places]
    return pairs, len(keys[0]) + len(keys[1]) - 2 * len(pairs)


def _arrived_s(replies: Columns) -> Array:
    lasted: Array = sum((replies[f"{phase}_s"] for phase in PHASES), np.zeros(len(replies["client"])))
    return replies["asked_at_s"] + lasted


def _errors(predicted: Array, real: Array) -> Array:
    return real / predicted - 1


def _tau(rounds: Array, predicted: Array, real: Array) -> float:
    """Return Kendall's tau over the pairs of one round whose predicted instants differ."""
    agree = count = 0
    for number in np.unique(rounds):
        before, after = predicted[rounds == number], real[rounds == number]
        for place in range(len(before)):
            signs = np.sign(before[place + 1 :] - before[place])
            agree += int((signs * np.sign(after[place + 1 :] - after[place])).sum())
            count += int(np.abs(signs).sum())
    return agree / count if count else 1.0


def _percent(share: float) -> str:
    return f"{number_format.percent(share)} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.2f} %"
