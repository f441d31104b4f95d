"""Runs of the papers' small versions: the figures that tables and claims need, kept in files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build, load_scenario

FOLDER = Path("scenarios/papers")


@dataclass(frozen=True)
class Outcome:
    """The figures of one run; accuracies in percent, traffic both ways."""

    accuracy: float
    """Mean over clients at the end; of a regression minus its loss."""
    others: Mapping[str, float]
    """What the algorithm has evaluated beside, by name."""
    losses: Sequence[float]
    """Mean loss of each client at the end."""
    course: Sequence[tuple[int, float | None]]
    """By round, the parameters communicated so far, and the global model's accuracy, a share, if measured."""
    simulated_s: float
    bytes: int
    parameters: int

    @classmethod
    def of(cls, result: RunResult) -> Outcome:
        """Return the figures of a finished run."""
        final, totals = result.final, result.totals
        assert final is not None
        assert final.mean_loss is not None
        traffic = [row.traffic.parameters_up + row.traffic.parameters_down for row in result.rounds]
        reached = [row.accuracy.global_ if row.accuracy else None for row in result.rounds]
        return cls(
            accuracy=-final.mean_loss if final.mean is None else 100 * final.mean,
            others={name: 100 * share for name, share in final.others.items()},
            losses=[float(loss) for loss in final.losses],
            course=list(zip(accumulate(traffic), reached, strict=True)),
            simulated_s=result.simulated_s,
            bytes=totals.bytes_up + totals.bytes_down + totals.data_up + totals.data_down,
            parameters=totals.parameters_up + totals.parameters_down,
        )

    @property
    def best_global(self) -> float | None:
        """Best accuracy of the global model, in percent."""
        return max((100 * share for _, share in self.course if share is not None), default=None)

    def parameters_to(self, goal: float) -> float:
        """Parameters until the global model first reaches a goal: C_acc (2.3) of the specification."""
        return next((spent for spent, share in self.course if 100 * (share or 0) >= goal), float("inf"))


Outcomes = Mapping[str, Sequence[Outcome]]
"""By label of a method, one for each seed."""


def outcome(file: str, algorithm: str, changes: Sequence[str], seed: int) -> Outcome:
    """Run one method with one seed."""
    scenario = load_scenario(FOLDER / f"{file}.toml", changes, algorithm=algorithm, seed=seed)
    return Outcome.of(run(build(scenario)))


def kept_outcome(
    folder: Path | None, name: str, file: str, algorithm: str, changes: Sequence[str], seed: int
) -> Outcome:
    """Return the outcome that a folder keeps under a name; run and keep it if there is none."""
    path = folder and folder / f"{name}, seed {seed}.json"
    if path and path.exists():
        return Outcome(**json.loads(path.read_text("utf-8")))
    result = outcome(file, algorithm, changes, seed)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(result)), "utf-8")
    return result
