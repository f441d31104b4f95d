"""The energy of runs that have been done: the same as during the run, and that of other powers."""

from pathlib import Path

import pytest
from pyarrow import parquet

from fedsim.errors import OutputError, ScenarioError, UserError
from fedsim.report.energy import PARTS
from fedsim.report.run_energy import energy_table, run_energy
from tests.report.test_energy import BUFFERED, run_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(BUFFERED, tmp_path_factory.mktemp("energy")).folder


def test_it_is_what_the_run_has_found(folder: Path) -> None:
    energy, found = run_energy(folder)
    stored = parquet.read_table(folder / "dispatches.parquet")
    for name in ("client", "dispatch", "round", "label", *PARTS):
        assert found[name].to_pylist() == stored[name].to_pylist()
    assert energy.config.server_power == 45


def test_other_powers_need_no_other_run(folder: Path, tmp_path: Path) -> None:
    overrides = ["fleet.0.compute_power=2 W", "fleet.0.radio=lte", "energy.pue=2"]
    energy, found = run_energy(folder, overrides)
    again = run_of(BUFFERED, tmp_path, *overrides)
    stored = parquet.read_table(again.folder / "dispatches.parquet")
    for name in PARTS:
        assert found[name].to_pylist() == stored[name].to_pylist()
    assert energy.summary() == again.summary["energy"]


def test_it_is_shown_by_label(folder: Path) -> None:
    energy, found = run_energy(folder)
    table = energy_table(energy, found["label"].to_numpy(), "energy")
    assert [row[0] for row in table.rows] == ["mid", "all clients"]
    assert table.rows[0][1:] == table.rows[1][1:]
    assert table.headings == ("device", "compute", "receive", "transmit", "tail", "idle")
    assert "server" in table.notes[0]


def test_a_run_without_energy_has_it_too(tmp_path: Path) -> None:
    done = run_of(BUFFERED, tmp_path)
    (done.folder / "scenario.toml").write_text(
        "\n".join(
            line
            for line in (done.folder / "scenario.toml").read_text().splitlines()
            if not line.startswith(("carbon_intensity", "server_power", "pue"))
        ).replace("[energy]", "")
    )
    energy, found = run_energy(done.folder)
    assert energy.summary()["server_j"] == 0
    assert sum(found["compute_j"].to_pylist()) == pytest.approx(done.summary["energy"]["compute_j"])


def test_faults_teach(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'training.lr' is part of what the run was: only powers"):
        run_energy(folder, {"training.lr": 0.1})
    with pytest.raises(ScenarioError, match="'-1 W' is negative"):
        run_energy(folder, ["fleet.0.compute_power=-1 W"])
    with pytest.raises(OutputError, match="is not the folder of a run"):
        run_energy(tmp_path)
