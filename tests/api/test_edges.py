"""What a finished run with edges can still become."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import ScenarioError, UserError

TABLES: dict[str, Any] = {
    "run": {"rounds": 3},
    "data": {"name": "digits", "limit": 120},
    "models": {"linear": {}},
    "fleet": [{"count": 4}],
    "cell": [{"name": "A", "share": 0.5}],
    "edge": [{"cell": "A", "rounds": 2}],
    "engine": {"workers": 1},
}


def test_a_run_with_edges_is_extended_by_doing_it_anew(tmp_path: Path) -> None:
    whole = fedsim.run(fedsim.load(TABLES), out=tmp_path / "whole")
    fedsim.run(fedsim.load(TABLES, {"run.rounds": 1}), out=tmp_path / "short")
    extended = fedsim.extend(tmp_path / "short", rounds=3)
    for name in ("trace_hash", "model_hash", "edges"):
        assert extended.summary[name] == whole.summary[name]
    assert extended.edge_messages.equals(whole.edge_messages)
    assert whole.edge_messages["edge"].unique().to_pylist() == ["A"]


def test_a_run_without_edges_has_no_frames_of_theirs(tmp_path: Path) -> None:
    result = fedsim.run(fedsim.load(TABLES, {"edge": [], "run.rounds": 1}), out=tmp_path / "run")
    with pytest.raises(UserError, match="this run has no table edge_messages"):
        _ = result.edge_messages


def test_an_edge_of_an_unknown_cell_is_a_fault_at_its_place() -> None:
    with pytest.raises(ScenarioError, match=r"edge\.0\.cell: no cell is called 'B'"):
        fedsim.run(fedsim.load(TABLES, {"edge.0.cell": "B"}))


def test_an_edge_without_any_cell_is_told_to_add_one() -> None:
    with pytest.raises(ScenarioError, match=r"no cell is called 'A' — add a \[\[cell\]\] of this name"):
        fedsim.run(fedsim.load({**TABLES, "cell": []}))
