"""Reports from folders: what they say, where they go, and what they do not replace."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import fedsim
from fedsim.errors import OutputError, UserError
from fedsim.page.html import html
from fedsim.page.page_content import Page
from fedsim.page.write_report import page_of, report_place, write_report
from fedsim.report.places import holds_run


@pytest.fixture
def folder(compared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compared, tmp_path / "tiny"))


def test_the_page_of_a_run(compared: Path) -> None:
    page = page_of(compared / "fedavg-seed0")
    summary = json.loads((compared / "fedavg-seed0" / "summary.json").read_text())
    assert (page.title, page.kind) == ("tiny: fedavg, seed 0", "run")
    assert page.answer.startswith("After 2 rounds, ")
    assert page.table is not None
    table = page.table.table
    assert [*table.headings[:2], table.headings[-1]] == ["algorithm", "accuracy\n%", "drops"]
    assert table.rows[0][0] == "fedavg"
    # There is nothing to compare it with.
    assert "relative" not in " ".join([*table.headings, *table.notes])
    facts = dict(page.facts)
    assert facts["trace hash"] == summary["trace_hash"]
    assert facts["model hash"] == summary["model_hash"]
    assert facts["fedsim"].startswith(fedsim.__version__)
    assert facts["parameters"] == 'weighting = "samples"'
    names = [figure.name for section in page.sections for figure in section.figures]
    assert len(names) == len(set(names)) >= 4


def test_the_page_of_a_comparison(compared: Path) -> None:
    page = page_of(compared)
    assert (page.title, page.kind) == ("tiny", "comparison")
    assert page.table is not None
    assert [row[0] for row in page.table.table.rows] == ["fedavg", "local"]
    facts = dict(page.facts)
    assert facts["runs"] == "4 of 4 have ended"
    assert facts["parameters of fedavg"] == 'weighting = "samples"'
    runs = next(one.table for one in page.tables if one.table.title == "runs")
    names = [f"{algorithm}-seed{seed}" for algorithm in ("fedavg", "local") for seed in (0, 1)]
    assert sorted(row[0] for row in runs.rows) == names


@pytest.mark.usefixtures("in_process")
def test_the_page_of_a_study_that_has_not_ended(tmp_path: Path, tiny_tables: dict[str, Any]) -> None:
    study = {"base": tiny_tables, "seeds": [0, 1], "targets": [0.1], "variant": [{"algorithm": "fedavg"}]}
    found = fedsim.study(study, out=tmp_path / "study", jobs=1)
    shutil.rmtree(tmp_path / "study" / "fedavg-seed1")
    page = page_of(tmp_path / "study")
    assert page.kind == "study"
    assert page.table is not None
    assert page.table.table.title == "to reach 10 %"
    assert page.remarks == ["fedavg-seed1: it is not there: it has not ended, or has failed"]
    assert found.write_report(tmp_path / "report.html").read_bytes() == html(page).encode()


@pytest.mark.parametrize("event", ["simulated time", "rejections", "divergence"])
def test_remarks_in_the_log_are_said(folder: Path, event: str) -> None:
    log = folder / "fedavg-seed0" / "log.jsonl"
    log.write_text(log.read_text() + f'{{"event": "{event}", "remark": "waits took long"}}\n')
    assert page_of(folder / "fedavg-seed0").remarks == ["waits took long"]
    assert page_of(folder).remarks == ["fedavg-seed0: waits took long"]


def test_the_model_of_the_server_is_said(folder: Path) -> None:
    file = folder / "fedavg-seed0" / "run.json"
    model = {"label": "large", "parameters": 12345}
    file.write_text(json.dumps({**json.loads(file.read_text()), "server_model": model}))
    assert dict(page_of(folder / "fedavg-seed0").facts)["server's model"] == "large, 12,345 parameters"


def test_places(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = folder / "fedavg-seed0"
    assert report_place(run) == folder / "fedavg-seed0.html"
    assert report_place(folder) == folder / "report.html"
    monkeypatch.chdir(run)
    assert report_place(Path()) == folder / "fedavg-seed0.html"
    monkeypatch.chdir(folder)
    assert report_place(Path("fedavg-seed0")) == Path("fedavg-seed0.html")


def test_a_run_stays_as_it_was(folder: Path) -> None:
    run = folder / "fedavg-seed0"
    scenario = (run / "scenario.toml").read_text()
    assert write_report(run).stat().st_size < 400_000
    assert holds_run(run, scenario)
    with pytest.raises(OutputError, match="is in the folder of a run, which holds what the run leaves"):
        write_report(run, run / "summary.json", force=True)


def test_only_reports_are_replaced(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "new" / "report.html"
    assert fedsim.Result(folder / "fedavg-seed0").write_report(place) == place
    before = place.read_bytes()
    opened = fedsim.open(folder)
    assert not isinstance(opened, fedsim.Result)
    opened.write_report(place)
    assert place.read_bytes() != before
    place.write_text("mine")
    with pytest.raises(OutputError, match=r"report\.html exists already"):
        write_report(folder, place)
    assert place.read_text() == "mine"
    write_report(folder, place, force=True)
    assert place.read_bytes() == html(page_of(folder)).encode()


def test_rounds_are_chosen_of_one_run(folder: Path, tmp_path: Path) -> None:
    place = fedsim.Result(folder / "fedavg-seed0").write_report(tmp_path / "report.html", rounds=(2, 2))
    assert "Clients by phase, round 2" in place.read_text()
    with pytest.raises(UserError, match=r"one run, and .* holds several: name the folder of one of them"):
        write_report(folder, place, rounds=(1, 2))


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds no results: name the folder of a run"):
        write_report(tmp_path, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "file", ["summary.json", "run.json", "log.jsonl", "scenario.toml", "rounds.parquet", "clients.parquet"]
)
def test_a_damaged_run(folder: Path, file: str) -> None:
    run = folder / "fedavg-seed0"
    (run / file).write_bytes(b"\xff\x00 garbage")
    with pytest.raises(OutputError, match=rf"{file} cannot be read, so these results are not whole"):
        page_of(run)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *((file, content) for file in ("summary.json", "run.json") for content in ("{}", "[]", "3")),
        *(("scenario.toml", f"{key} = 3") for key in ("run", "network", "participation")),
    ],
)
def test_a_file_of_something_else(folder: Path, file: str, content: str) -> None:
    run = folder / "fedavg-seed0"
    (run / file).write_text(content)
    with pytest.raises(OutputError, match="these results are not whole"):
        page_of(run)


def test_tables_that_do_not_fit_together(folder: Path) -> None:
    run = folder / "fedavg-seed0"
    rounds = parquet.read_table(run / "rounds.parquet")
    parquet.write_table(rounds.slice(0, 1), run / "rounds.parquet")
    with pytest.raises(OutputError, match="these results are not whole"):
        page_of(run)


@pytest.mark.parametrize(
    "file", ["summary.json", "run.json", "log.jsonl", "scenario.toml", "rounds.parquet", "clients.parquet"]
)
def test_a_file_that_is_gone(folder: Path, file: str) -> None:
    run = folder / "fedavg-seed0"
    (run / file).unlink()
    wanted = rf"{file} cannot be read, so these .*: No such file or directory$|, in which is {file}"
    with pytest.raises(OutputError, match=wanted):
        page_of(run)


def test_pages_are_equal_each_time(compared: Path) -> None:
    assert html(page_of(compared)) == html(page_of(compared))
    assert isinstance(page_of(compared), Page)
