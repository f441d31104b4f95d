"""The studies of the papers' tables, each small and on embedded data: every kind of variant runs."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import papers
import pytest

from fedsim.runtime.run import run
from fedsim.scenario import build
from fedsim.studies.plan import StudyPlan, load_study

FILES = sorted(papers.STUDIES.glob("*.toml"))
MAX_CLIENTS = 12


def document(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def small(path: Path, tmp_path: Path) -> StudyPlan:
    """Return a study of two rounds for few clients, with images or a play that a program has made."""
    study = document(path)
    base = study["base"]
    if isinstance(base, dict):
        base["run"] = {"rounds": 2}
        base["training"] |= {"epochs": 1} if "epochs" in base["training"] else {"steps": 2}
        base["data"] = _embedded(base["data"], tmp_path)
        for group in base["fleet"]:
            group["count"] = min(group["count"], MAX_CLIENTS // len(base["fleet"]))
        participation = base.setdefault("participation", {})
        if "clients_per_round" in participation:
            participation["clients_per_round"] = 4
        base["evaluation"] = {"every": 2}
        for params in base.get("algorithms", {}).values():
            if "temperatures" in params:
                params["distill_epochs"] = 1
    for table in (study, *study["variant"]):
        changes = table.get("set", {})
        for path_ in [name for name in changes if name in ("data.limit", "run.rounds", "fleet.0.count")]:
            del changes[path_]
        if "participation.clients_per_round" in changes:
            changes["participation.clients_per_round"] = 4
        if "data.public.source" in changes:
            changes["data.public.source"] = _foreign()
        if "data.public" in changes:
            changes["data.public"]["size"] = 40
        if "data.public.size" in changes:
            changes["data.public.size"] = 80
        if wanted := changes.get("participation.clients_per_round"):
            changes["participation.clients_per_round"] = min(wanted, 6)
    study.pop("tune", None)
    study["seeds"] = [0]
    return load_study(study)


def _embedded(data: Mapping[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Return the same data settings with data that needs no files, where the study has files."""
    changed = {name: value for name, value in data.items() if name not in ("name", "params", "limit")}
    if data["name"] == "shakespeare":
        speeches = [f"ROLE {number % 16}:\n{'To be, or not to be. ' * 9}\n\n" for number in range(96)]
        (tmp_path / "play.txt").write_text("".join(speeches), "utf-8")
        changed |= {"name": "shakespeare", "params": {"file": str(tmp_path / "play.txt"), "stride": 81}}
    else:
        changed |= {"name": "writers", "params": {"num_writers": 40, "size": 28}, "limit": 800}
    if "public" in data:
        changed["public"] = dict(data["public"]) | {"size": 40}
        if "source" in data["public"]:
            changed["public"]["source"] = _foreign()
    return changed


def _foreign() -> dict[str, Any]:
    return {"name": "writers", "params": {"num_writers": 10, "size": 28}}


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_kind_of_variant_runs(path: Path, tmp_path: Path) -> None:
    seen = set[str]()
    for one in small(path, tmp_path).runs:
        parts = build(one.scenario)
        without_numbers = re.sub(r"(?<![\w-])[-+]?\d[\d._e+-]*", "0", one.scenario_toml)
        if without_numbers in seen:
            continue  # Runs that differ only in numbers take the same way: building the others is enough.
        seen.add(without_numbers)
        result = run(parts)
        assert result.final is not None, one.label
        assert result.non_finite is None, one.label


@pytest.mark.parametrize(
    # Two studies change a condition of another one, which has these methods.
    "path",
    [path for path in FILES if path.stem not in ("fedet_reasons", "phone_public")],
    ids=lambda path: path.stem,
)
def test_a_table_has_training_alone_and_fine_tuned_averages(path: Path) -> None:
    algorithms = {variant["algorithm"] for variant in document(path)["variant"]}
    assert "local" in algorithms
    assert "fedavg_ft" in algorithms or path.stem == "perfed_ckt_figure1"  # a regression with three clients
