"""Spans are those of the table of dispatches, read again from the trace."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from fedsim.errors import OutputError
from fedsim.report.record_run import record
from fedsim.report.run_trace import read_spans
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.scenario import Plan, load_scenario

LEAVING = """

[[fleet]]
count = 4
device = "low"
up = "64 kbit/s"
drop_out = "6 /min"
availability = { name = "duty_cycle", params = { period = "1.5 s", on_share = 0.6 } }

[participation]
client_timeout = "3 s"
"""


@pytest.fixture
def folder(tiny_scenario: str, tmp_path: Path) -> Path:
    """The folder of a run in which clients leave, come back and drop out."""
    file = tmp_path / "leaving.toml"
    file.write_text(tiny_scenario.replace('[[fleet]]\ncount = 4\ndevice = "high"', LEAVING))
    scenario = load_scenario(file, ["run.rounds=8"])
    return record(Plan.of(scenario, "leaving"), tmp_path / "run").folder


def test_spans_sum_to_the_phases_of_the_table(folder: Path) -> None:
    spans = read_spans(folder)
    columns = parquet.read_table(folder / "dispatches.parquet").to_pydict()
    rows = {of: row for row, of in enumerate(zip(columns["client"], columns["dispatch"], strict=True))}
    row = np.array([rows[of] for of in zip(spans["client"], spans["dispatch"], strict=True)])
    assert (np.diff(row) >= 0).all()
    length_ns = np.rint(spans["ended_at_s"] * 1e9) - np.rint(spans["began_at_s"] * 1e9)
    for phase in PHASES:
        spent_ns = np.bincount(row, length_ns * (spans["phase"] == phase), len(rows))
        assert spent_ns.tolist() == np.rint(np.array(columns[f"{phase}_s"]) * 1e9).tolist()
    assert {"download", "compute", "upload", "away", "waiting"} == set(spans["phase"])
    assert spans["is_exact"].all()
    for name in ("round", "outcome"):
        assert spans[name].tolist() == [columns[name][index] for index in row]


def test_spans_of_a_dispatch_lie_end_to_end(folder: Path) -> None:
    spans = read_spans(folder)
    dispatch = list(zip(spans["client"], spans["dispatch"], strict=True))
    inside = [index for index in range(1, len(dispatch)) if dispatch[index] == dispatch[index - 1]]
    assert inside
    assert all(spans["began_at_s"][index] == spans["ended_at_s"][index - 1] for index in inside)


def test_a_run_without_dispatches_has_no_spans(make_parts: Callable[..., Parts], tmp_path: Path) -> None:
    done = record(Plan("tiny", "fedavg", "", make_parts(rounds=0)), tmp_path / "run")
    assert {len(column) for column in read_spans(done.folder).values()} == {0}


def test_damaged_folders_are_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"holds 1 run: name one of them, such as .*run"):
        read_spans(tmp_path)
    with pytest.raises(OutputError, match=r"is not the folder of a run: it holds no summary\.json"):
        read_spans(tmp_path / "nowhere")
    trace = folder / "trace.msgpack"
    content = trace.read_bytes()
    trace.write_bytes(content[:-9])
    with pytest.raises(OutputError, match="is not the trace of this run, whose hash"):
        read_spans(folder)
    trace.unlink()
    with pytest.raises(OutputError, match=r"trace\.msgpack cannot be read"):
        read_spans(folder)
