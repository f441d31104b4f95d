"""Write what finished studies of the papers' tables have measured into ``scenarios/papers/results/``.

Run from the root of the repository, with the folders of the studies::

    fedsim study scenarios/papers/studies/ktpfl_table1_fashion.toml
    python tools/papers.py runs/ktpfl_table1_fashion

A result has a row for each variant, point of the grid and seed. Its first line names the hash of the
settings, their commit, and the real time of all runs and trials. A study whose settings are not committed, or
are not those that ran, or of which runs are missing is refused. Of a study that states budgets (``at``) the
accuracy of every evaluation is written too, below ``curves``.
``tests/test_claims.py`` fails if a settings file is newer than its result.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fedsim.params import Array
from fedsim.report import number_format
from fedsim.report.read_parquet import read_columns
from fedsim.report.summary import read_summary
from fedsim.studies.answer_files import Answers, read_folder
from fedsim.studies.plan import TUNING, Setting, load_study

FOLDER = Path(__file__).parents[1] / "scenarios" / "papers"
STUDIES, RESULTS = FOLDER / "studies", FOLDER / "results"

MAX_CLIENTS = 20
"""Clients of which a result has single accuracies."""
CURVE = ("simulated_s", "bytes_up", "bytes_down", "accuracy_personal_mean")
"""Columns of the evaluations of a study."""

Row = Mapping[str, str]


@dataclass(frozen=True)
class Result:
    """What a study has measured."""

    name: str
    settings: str
    """SHA-256 of the settings, hexadecimal."""
    commit: str
    """The commit of the settings."""
    real_s: float
    """Real time of all runs and trials, one after the other, in seconds."""
    rows: Sequence[Row]

    @property
    def tuned(self) -> list[str]:
        """The paths that were tuned: those after the point of the grid, which is in ``cell``."""
        return [name for name in self.rows[0] if "." in name]

    @cached_property
    def cells(self) -> Mapping[str, Mapping[int, Row]]:
        """The rows by label of variant and point, such as ``"ktpfl @ two_class"``, and by seed."""
        cells: dict[str, dict[int, Row]] = {}
        for row in self.rows:
            cells.setdefault(row["cell"], {})[int(row["seed"])] = row
        return cells

    def values(self, cell: str, measure: str) -> dict[int, float]:
        """Return the values of a column by seed; infinite where a target was not reached.

        A cell may name a column of its own: ``"fedavg_ft : untuned @ 0.1"``.
        """
        variant, at, point = cell.partition(" @ ")
        variant, _, own = variant.partition(" : ")
        rows = self.cells[variant + at + point]
        return {seed: float(row[own or measure] or "inf") for seed, row in rows.items()}

    def clients(self, cell: str) -> dict[int, Array]:
        """Return the accuracies of single clients by seed, in percent."""
        return {seed: np.array(row["clients"].split(), float) for seed, row in self.cells[cell].items()}


def settings_hash(name: str) -> str:
    """Return the SHA-256 of a study's settings, without their comments."""
    settings = tomllib.loads((STUDIES / f"{name}.toml").read_text("utf-8"))
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def read_result(name: str) -> Result:
    """Return a result of the folder."""
    head, *lines = (RESULTS / f"{name}.csv").read_text("utf-8").splitlines()
    said = dict(part.split(" ", 1) for part in head.removeprefix("# ").split(", "))
    rows = list(csv.DictReader(lines))
    return Result(name, said["settings"], said["commit"], float(said["real_s"]), rows)


def read_curves(name: str) -> dict[str, dict[int, dict[str, Array]]]:
    """Return the evaluations of a study by cell and seed, a column for each of :data:`CURVE`."""
    runs: dict[str, dict[int, list[list[float]]]] = {}
    for row in csv.DictReader((RESULTS / "curves" / f"{name}.csv").read_text("utf-8").splitlines()):
        values = [float(row[column]) for column in CURVE]
        runs.setdefault(row["cell"], {}).setdefault(int(row["seed"]), []).append(values)
    return {
        cell: {seed: dict(zip(CURVE, np.array(rows).T, strict=True)) for seed, rows in by_seed.items()}
        for cell, by_seed in runs.items()
    }


def finished() -> list[str]:
    """Return the names of the studies that have a result."""
    return sorted(path.stem for path in RESULTS.glob("*.csv"))


def main() -> int:
    """Write the result of each folder; return the exit status."""
    if not sys.argv[1:] or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0
    for folder in sys.argv[1:]:
        answers = read_folder(Path(folder))
        name = answers.plan.name
        if problem := _problem(answers, name):
            print(f"{folder}: {problem}", file=sys.stderr)
            return 1
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.csv").write_text(_text(answers, name, Path(folder)), "utf-8")
        print(f"wrote {RESULTS / name}.csv")
        at = answers.plan.config.at
        if at.simulated or at.bytes:
            (RESULTS / "curves").mkdir(exist_ok=True)
            (RESULTS / "curves" / f"{name}.csv").write_text(_csv(list(_curves(answers))), "utf-8")
            print(f"wrote {RESULTS / 'curves' / name}.csv")
    return 0


def _problem(answers: Answers, name: str) -> str | None:
    """Return why a study has no result."""
    file = STUDIES / f"{name}.toml"
    if not file.is_file():
        return f"there is no {file}"
    if answers.failed:
        run, why = next(iter(answers.failed.items()))
        count = number_format.several(len(answers.failed), "run")
        return f"{count} missing or failed, such as {run}: {why}"
    if _git("status", "--porcelain", "--", str(file)):
        return f"{file.name} has changes that are not committed: commit settings before they are run"
    expected = {run.label: run.scenario_toml for run in load_study(file).runs}
    if any(expected.get(run.label) != run.scenario_toml for run in answers.plan.runs):
        return f"{file.name} has changed since: run it again"
    return None


def _text(answers: Answers, name: str, folder: Path) -> str:
    """Return the text of a result."""
    rows = [row(answers, run.setting, run.seed, folder / run.label) for run in answers.plan.runs]
    folders = [folder / run.label for run in answers.plan.runs]
    folders += sorted((folder / TUNING).glob("*/")) if answers.trials else []
    real_s = sum(read_summary(run)["wall_s"] for run in folders)
    commit = _git("log", "-1", "--format=%h", "--", str(STUDIES / f"{name}.toml"))
    return f"# settings {settings_hash(name)}, commit {commit}, real_s {real_s:.0f}\n" + _csv(rows)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(key for one in rows for key in one))
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _curves(answers: Answers) -> Iterator[dict[str, Any]]:
    """Yield a row for each evaluation of each run."""
    for setting, by_seed in answers.curves.items():
        for seed, curve in by_seed.items():
            for values in zip(*(curve[name].tolist() for name in CURVE), strict=True):
                yield {"cell": cell_of(setting), "seed": seed, **dict(zip(CURVE, values, strict=True))}


def row(answers: Answers, setting: Setting, seed: int, folder: Path) -> dict[str, Any]:
    """Return the row of a run: accuracies in percent, traffic of both directions."""
    summary = read_summary(folder)
    accuracy = summary["accuracy"]
    chosen = answers.plan.row_of(setting)
    shown = {
        "accuracy": accuracy["personal_mean"],
        "std_over_clients": accuracy["personal_std"],
        "global": accuracy["global"],
        "best": accuracy["best"],
        "best_global": accuracy["best_global"],
        **accuracy["others"],
    }
    return {
        "cell": cell_of(setting),
        **{path: chosen[path] for path in answers.plan.tuned},
        "seed": seed,
        **{key: "" if share is None else f"{100 * share:.4f}" for key, share in shown.items()},
        "loss": f"{summary['loss']['personal_mean']:.6g}",
        "bytes": sum(summary[key] for key in ("bytes_up", "bytes_down", "data_up", "data_down")),
        "parameters": summary["parameters_up"] + summary["parameters_down"],
        **dict(_targets(answers, setting, seed)),
        "rounds": summary["rounds"],
        "simulated_s": f"{summary['simulated_s']:.6g}",
        "client_compute_s": f"{summary['time']['compute_s']:.6g}",
        "real_s": f"{summary['wall_s']:.1f}",
        "model_hash": summary["model_hash"][:16],
        "clients": _of_clients(folder),
        **_students(folder),
    }


def cell_of(setting: Setting) -> str:
    """Return the label of a variant at a point of the grid, such as ``"ktpfl @ two_class"``."""
    return " @ ".join([setting.variant, *map(_word, setting.point)])


def _word(value: object) -> str:
    """Return a value of the grid; of a plugin's table the plugin's name."""
    text = str(value)
    return str(tomllib.loads(f"value = {text}")["value"]["name"]) if text.startswith("{") else text


def _of_clients(folder: Path) -> str:
    """Return the accuracies of the clients at the end, in percent; none where there are many clients."""
    accuracy = read_columns(folder / "clients.parquet", ("accuracy",))["accuracy"]
    return " ".join(f"{100 * share:.1f}" for share in accuracy) if len(accuracy) <= MAX_CLIENTS else ""


def _students(folder: Path) -> dict[str, str]:
    """Return the mean weight of the teacher that PersFL's clients have chosen, if this is a run of PersFL."""
    lines = (folder / "log.jsonl").read_text("utf-8").splitlines()
    weights = [json.loads(line)["weight"] for line in lines if '"student chosen"' in line]
    return {"teacher_weight": f"{fmean(weights):.4f}"} if weights else {}


def _targets(answers: Answers, setting: Setting, seed: int) -> Iterator[tuple[str, int | str]]:
    """Yield the parameters that were sent until each target was reached; empty where it was not."""
    curve, config = answers.curves[setting][seed], answers.plan.config
    column = {"global": "accuracy_global", "personal_mean": "accuracy_personal_mean"}.get(config.of, "")
    for target in config.targets:
        reached = np.flatnonzero(curve[column] >= target)
        sent = (
            sum(curve[way][reached[0]] for way in ("parameters_up", "parameters_down"))
            if len(reached)
            else ""
        )
        yield f"parameters_to_{100 * target:g}", sent


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],  # noqa: S607
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
