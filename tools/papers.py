"""Write what finished studies of the papers' tables have measured into ``scenarios/papers/results/``.

Run from the root of the repository, with the folders of the studies::

    fedsim study scenarios/papers/studies/ktpfl_table1_fashion.toml
    python tools/papers.py runs/ktpfl_table1_fashion

A result has a row for each variant, point of the grid and seed. Its first line has the hash of the settings,
their commit, that of the code, the real time of all runs and trials, and the kinds of processors. Refused are
studies whose settings were not committed before the first run or have changed since, and studies with missing
runs. For a study with budgets (``at``) all evaluations are written too, below ``curves``.
``tests/test_claims.py`` fails if settings are newer than their result. Where there is a result already the
tool prints how the new one differs from it.
"""

from __future__ import annotations

import csv
import io
import json
import math
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

from fedsim import example_files
from fedsim.errors import ScenarioError
from fedsim.params import Array
from fedsim.report import number_format
from fedsim.report.read_parquet import read_columns
from fedsim.report.read_results import read_provenance
from fedsim.report.summary import read_summary
from fedsim.runtime.budget import MEASURES
from fedsim.scenario import build, load_scenario
from fedsim.studies.answer_files import NOT_FINITE, Answers, read_folder
from fedsim.studies.plan import Setting, load_study

FOLDER = Path(__file__).parents[1] / "scenarios" / "papers"
STUDIES, RESULTS = FOLDER / "studies", FOLDER / "results"

MAX_CLIENTS = 20
"""Clients of which a result has single accuracies."""
CURVE = ("round", "simulated_s", "bytes_up", "bytes_down", "accuracy_personal_mean")
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
    studies: Sequence[str] = ()
    """The studies whose results were joined to this one."""

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

        A cell may name a column of its own: ``"fedavg_ft : untuned @ 0.1"``. ``client_losses[0,2]`` is the
        mean loss of these clients, ``architectures[four]`` the percentage of clients that have chosen this
        one, and ``architectures[*]`` that of the one that most have chosen.
        """
        variant, at, point = cell.partition(" @ ")
        variant, _, own = variant.partition(" : ")
        rows = self.cells[variant + at + point]
        column = own or measure
        if column.startswith("client_losses["):
            chosen = [int(client) for client in column[len("client_losses[") : -1].split(",")]
            losses = {seed: row["client_losses"].split() for seed, row in rows.items()}
            return {
                seed: fmean(float(values[client]) for client in chosen) for seed, values in losses.items()
            }
        if column.startswith("architectures["):
            label = column[len("architectures[") : -1]
            choices = {seed: row["architectures"].split() for seed, row in rows.items()}
            return {
                seed: 100 * max(map(chosen.count, chosen if label == "*" else [label])) / len(chosen)
                for seed, chosen in choices.items()
            }
        if not column.startswith("parameters_to_") and not all(row[column] for row in rows.values()):
            raise ValueError(f"{cell} has no {column}")
        return {seed: float(row[column] or "inf") for seed, row in rows.items()}

    def clients(self, cell: str) -> dict[int, Array]:
        """Return the accuracies of single clients by seed, in percent."""
        return {seed: np.array(row["clients"].split(), float) for seed, row in self.cells[cell].items()}


def settings_hash(name: str) -> str:
    """Return the SHA-256 of a study's settings, without their comments."""
    return _hash((STUDIES / f"{name}.toml").read_text("utf-8"))


def _hash(text: str) -> str:
    settings = tomllib.loads(text)
    if isinstance(settings["base"], str):  # an example
        settings["base"] = tomllib.loads(example_files.file_of(settings["base"]).read_text("utf-8"))
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def read_result(name: str) -> Result:
    """Return a result of the folder."""
    text = (RESULTS / f"{name}.csv").read_text("utf-8")
    said = dict(part.split(" ", 1) for part in text.splitlines()[0].removeprefix("# ").split(", "))
    return Result(name, said["settings"], said["commit"], float(said["real_s"]), _rows(text))


def joined(name: str, studies: Sequence[str]) -> Result:
    """Return the results of several studies as one; their cells have different labels."""
    parts = [read_result(study) for study in studies]
    commits = ", ".join(dict.fromkeys(part.commit for part in parts))
    rows = [row for part in parts for row in part.rows]
    return Result(name, parts[0].settings, commits, sum(part.real_s for part in parts), rows, studies)


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
        if problem := _problem(answers, name, Path(folder)):
            print(f"{folder}: {problem}", file=sys.stderr)
            return 1
        RESULTS.mkdir(exist_ok=True)
        file, text = RESULTS / f"{name}.csv", _text(answers, name, Path(folder))
        if file.is_file():
            print("\n".join(differences(file.read_text("utf-8"), text)))
        file.write_text(text, "utf-8")
        print(f"wrote {file}")
        at = answers.plan.config.at
        if at.simulated or at.bytes:
            (RESULTS / "curves").mkdir(exist_ok=True)
            (RESULTS / "curves" / f"{name}.csv").write_text(_csv(list(_curves(answers))), "utf-8")
            print(f"wrote {RESULTS / 'curves' / name}.csv")
    return 0


def differences(old: str, new: str) -> list[str]:
    """Return how two results of the same settings differ, apart from real times and new columns."""
    before, after = ({(row["cell"], row["seed"]): row for row in _rows(text)} for text in (old, new))
    if before.keys() != after.keys():
        return ["the runs are other ones than those of the present result"]
    runs, found = number_format.several(len(before), "run"), []
    for column in next(iter(before.values())):
        pairs = [(before[run][column], after[run].get(column, "")) for run in before]
        unequal = [pair for pair in pairs if pair[0] != pair[1]]
        if column != "real_s" and unequal:
            far = [abs(float(a) - float(b)) for a, b in unequal if _is_number(a) and _is_number(b)]
            by = f", by up to {max(far):.4g}" if far and column != "model_hash" else ""
            found.append(f"{column} differs in {len(unequal)} of {runs}{by}")
    return found or ["all values but real times are those of the present result"]


def _rows(text: str) -> list[Row]:
    return list(csv.DictReader(text.splitlines()[1:]))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _problem(answers: Answers, name: str, folder: Path) -> str | None:
    """Return why a study has no result."""
    file = STUDIES / f"{name}.toml"
    if not file.is_file():
        return f"there is no {file}"
    # A run that has diverged is a result too: its accuracy counts as it was measured. A trial whose rate the
    # algorithm refuses was not chosen. One that was killed might have been.
    plan = load_study(file)
    trials = {trial.label: trial.scenario_toml for trial in plan.all_trials}
    failed = {
        run: why
        for run, why in answers.failed.items()
        if why != NOT_FINITE and not (run in trials and _is_refused(trials[run], plan.tuned))
    }
    if failed:
        run, why = next(iter(failed.items()))
        return f"{number_format.several(len(failed), 'run')} missing or failed, such as {run}: {why}"
    expected = {run.label: run.scenario_toml for run in plan.runs}
    if any(expected.get(run.label) != run.scenario_toml for run in answers.plan.runs):
        return f"{file.name} has changed since: run it again"
    _, committed_s = settings_commit(name)
    began_s = min(_began_s(folder / run.label) for run in answers.plan.runs)
    if committed_s > began_s:
        return f"the settings of {file.name} were not committed before the first run: run it again"
    return None


def _is_refused(trial: str, tuned: Sequence[str]) -> bool:
    """Return whether a trial cannot run because of a value that is tuned, and of nothing else."""
    try:
        build(load_scenario(tomllib.loads(trial)), "a trial")
    except ScenarioError as error:
        return all(fault.path in tuned for fault in error.faults)
    return False


def settings_commit(name: str) -> tuple[str, float]:
    """Return the first commit that has a study's present settings, and its time; never, if none has."""
    file, found = STUDIES / f"{name}.toml", ("none", math.inf)
    wanted = settings_hash(name)
    for line in _git("log", "--format=%h %ct", "--", str(file)).splitlines():
        commit, at_s = line.split()
        text = _git("show", f"{commit}:./{file.relative_to(FOLDER)}")
        if _hash(text) == wanted:
            found = commit, float(at_s)
    return found


def _began_s(run: Path) -> float:
    """Return when a run began, in seconds since 1970, to the second."""
    summary = run / "summary.json"
    return summary.stat().st_mtime - float(read_summary(run)["wall_s"])


def _text(answers: Answers, name: str, folder: Path) -> str:
    """Return the text of a result."""
    runs = answers.plan.runs
    rows = [row(answers, run.setting, run.seed, folder / run.label) for run in runs]
    labels = [run.label for run in (*load_study(STUDIES / f"{name}.toml").all_trials, *runs)]
    done = [folder / label for label in labels if (folder / label / "summary.json").is_file()]
    real_s = sum(read_summary(place)["wall_s"] for place in done)
    processors = {read_provenance(place).get("processor", "unknown") for place in done}
    said = {
        "settings": settings_hash(name),
        "commit": settings_commit(name)[0],
        "code": _git("rev-parse", "--short", "HEAD"),
        "real_s": f"{real_s:.0f}",
        "processor": " and ".join(sorted(processors)),
    }
    return f"# {', '.join(f'{key} {value}' for key, value in said.items())}\n{_csv(rows)}"


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
        "algorithm": setting.algorithm,
        **{path: chosen[path] for path in answers.plan.tuned},
        "seed": seed,
        **{key: "" if share is None else f"{100 * share:.4f}" for key, share in shown.items()},
        "loss": "" if (loss := summary["loss"]["personal_mean"]) is None else f"{loss:.6g}",
        "bytes": sum(summary[key] for key in ("bytes_up", "bytes_down", "data_up", "data_down")),
        "data_bytes": summary["data_up"] + summary["data_down"],
        "parameters": summary["parameters_up"] + summary["parameters_down"],
        **dict(_targets(answers, setting, seed)),
        "rounds": summary["rounds"],
        "simulated_s": f"{summary['simulated_s']:.6g}",
        "client_compute_s": f"{summary['time']['compute_s']:.6g}",
        **(_energy(energy) if (energy := summary.get("energy")) else {}),
        "real_s": f"{summary['wall_s']:.1f}",
        "model_hash": summary["model_hash"][:16],
        "clients": _of_clients(folder, "accuracy", 100, ".1f"),
        "client_losses": _of_clients(folder, "loss", 1, ".6g"),
        **_choices(folder),
    }


def _energy(energy: Mapping[str, float]) -> dict[str, str]:
    """Return what the clients have drawn, and what of it their radios drew after transfers, in J."""
    return {"joules": f"{energy['clients_j']:.6g}", "tail_joules": f"{energy['tail_j']:.6g}"}


def cell_of(setting: Setting) -> str:
    """Return the label of a variant at a point of the grid, such as ``"ktpfl @ two_class"``."""
    return " @ ".join([setting.variant, *map(_word, setting.point)])


def _word(value: object) -> str:
    """Return a value of the grid; of a plugin's table the plugin's name."""
    text = str(value)
    return str(tomllib.loads(f"value = {text}")["value"]["name"]) if text.startswith("{") else text


def _of_clients(folder: Path, column: str, factor: float, form: str) -> str:
    """Return a value of each client at the end; nothing where there are many clients, or no such values."""
    values = read_columns(folder / "clients.parquet", (column,))[column].astype(float)
    if len(values) > MAX_CLIENTS or not np.isfinite(values).any():
        return ""
    return " ".join(f"{factor * value:{form}}" for value in values)


def _choices(folder: Path) -> dict[str, str]:
    """Return what clients have chosen: the teacher's weight (PersFL, the mean), an architecture (FedMe)."""
    lines = (folder / "log.jsonl").read_text("utf-8").splitlines()
    weights = [json.loads(line)["weight"] for line in lines if '"student chosen"' in line]
    labels = [json.loads(line)["architecture"] for line in lines if '"architecture chosen"' in line]
    return {
        **({"teacher_weight": f"{fmean(weights):.4f}"} if weights else {}),
        **({"architectures": " ".join(labels)} if labels else {}),
    }


def _targets(answers: Answers, setting: Setting, seed: int) -> Iterator[tuple[str, int | str]]:
    """Yield the parameters that were sent until each target was reached; empty where it was not."""
    curve, config = answers.curves[setting][seed], answers.plan.config
    for target in config.targets:
        reached = np.flatnonzero(curve[MEASURES[config.of].column] >= target)
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
