"""The tool that writes what a finished study of a paper's table has measured."""

import json
import shutil
from pathlib import Path

import papers
import pytest

import fedsim
from fedsim.report.provenance import processor

SETTINGS = """
seeds = [0, 1]
targets = [0.01, 1.0]
at = { simulated = ["1 h"] }

[base]
run = { rounds = 2 }
data = { name = "digits", limit = 120 }
models = { linear = {} }
training = { lr = 0.1, steps = 1 }
fleet = [{ count = 2, device = "high" }]
evaluation = { every = 1 }

[[variant]]
algorithm = "local"

[[variant]]
algorithm = "fedavg_ft"
name = "tuned"

[grid]
"data.partition" = [{ name = "iid" }]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a finished study, whose settings are in a folder of their own."""
    monkeypatch.setattr(papers, "STUDIES", tmp_path / "settings")
    monkeypatch.setattr(papers, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(papers, "FOLDER", tmp_path)
    commit(monkeypatch, at_s=1)
    papers.STUDIES.mkdir()
    (papers.STUDIES / "tiny.toml").write_text(SETTINGS, "utf-8")
    fedsim.study(papers.STUDIES / "tiny.toml", out=tmp_path / "run", jobs=1)
    return tmp_path / "run"


def commit(monkeypatch: pytest.MonkeyPatch, at_s: int, settings: str = SETTINGS) -> None:
    """Let git say that settings were committed at a time."""

    def git(command: str, *_: str) -> str:
        return {"log": f"0abc123 {at_s}", "rev-parse": "c0de"}.get(command, settings)

    monkeypatch.setattr(papers, "_git", git)


def write(monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    monkeypatch.setattr("sys.argv", ["papers.py", str(folder)])
    return papers.main()


def test_a_result_has_a_row_for_each_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write(monkeypatch, folder) == 0
    result = papers.read_result("tiny")
    assert list(result.cells) == ["local @ iid", "tuned @ iid"]
    assert [list(by_seed) for by_seed in result.cells.values()] == [[0, 1], [0, 1]]
    assert (result.commit, result.settings) == ("0abc123", papers.settings_hash("tiny"))
    head = (papers.RESULTS / "tiny.csv").read_text("utf-8").splitlines()[0]
    assert head.endswith(f", processor {processor()}")
    assert result.real_s == pytest.approx(sum(float(row["real_s"]) for row in result.rows), abs=1)
    for row in result.rows:
        assert 0 <= float(row["accuracy"]) <= 100
        assert row["parameters_to_100"] == "" or row["best"] == "100.0000"
    assert result.values("local @ iid", "bytes") == {0: 0, 1: 0}
    assert result.values("local @ iid", "parameters_to_100")[0] in (0, float("inf"))
    untuned = result.values("tuned : untuned @ iid", "accuracy")
    assert untuned == {seed: float(row["untuned"]) for seed, row in result.cells["tuned @ iid"].items()}


def test_a_repeated_study_says_what_differs_from_the_present_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(monkeypatch, folder)
    assert "present result" not in capsys.readouterr().out
    write(monkeypatch, folder)
    assert "all values but real times are those of the present result" in capsys.readouterr().out
    old = "# head\ncell,seed,accuracy,clients,real_s,model_hash\na,0,50,4 6,1,1e5\na,1,60,,2,cd\n"
    new = "# head\ncell,seed,accuracy,new,clients,real_s,model_hash\na,0,52,7,4 8,3,1e6\na,1,59,7,,2,cd\n"
    assert papers.differences(old, new) == [
        "accuracy differs in 2 of 2 runs, by up to 2",
        "clients differs in 1 of 2 runs",
        "model_hash differs in 1 of 2 runs",
    ]
    assert papers.differences(old, new.replace("a,1", "b,1")) == [
        "the runs are other ones than those of the present result"
    ]


def test_results_of_several_studies_are_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write(monkeypatch, folder) == 0
    text = (papers.RESULTS / "tiny.csv").read_text("utf-8")
    (papers.RESULTS / "other.csv").write_text(text.replace("iid", "dirichlet"), "utf-8")
    result, part = papers.joined("both", ["tiny", "other"]), papers.read_result("tiny")
    assert list(result.cells) == ["local @ iid", "tuned @ iid", "local @ dirichlet", "tuned @ dirichlet"]
    assert (result.commit, result.real_s) == (part.commit, 2 * part.real_s)


def test_evaluations_are_written_where_a_study_states_budgets(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(monkeypatch, folder)
    curves, result = papers.read_curves("tiny"), papers.read_result("tiny")
    for cell, by_seed in curves.items():
        for seed, curve in by_seed.items():
            last = 100 * curve["accuracy_personal_mean"][-1]
            assert f"{last:.4f}" == result.cells[cell][seed]["accuracy"]


def test_settings_that_did_not_run_or_were_committed_later_have_no_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(monkeypatch, at_s=2**33)
    assert write(monkeypatch, folder) == 1
    assert "not committed before the first run" in capsys.readouterr().err
    commit(monkeypatch, at_s=1)
    (papers.STUDIES / "tiny.toml").write_text(SETTINGS.replace("lr = 0.1", "lr = 0.2"), "utf-8")
    assert papers.settings_commit("tiny") == ("none", float("inf"))
    assert write(monkeypatch, folder) == 1
    assert "tiny.toml has changed since: run it again" in capsys.readouterr().err
    (papers.STUDIES / "tiny.toml").unlink()
    assert write(monkeypatch, folder) == 1
    assert "there is no" in capsys.readouterr().err


def test_a_study_with_missing_runs_has_no_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(next(folder.glob("local*seed1")))
    assert write(monkeypatch, folder) == 1
    assert "1 run missing or failed, such as local" in capsys.readouterr().err


def test_a_study_with_a_missing_trial_has_no_result_unless_fedsim_refuses_the_trial(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = '[[variant]]\nalgorithm = "pfedme"\n[tune]\nseeds = [100]\n"training.lr" = [0.1, 0.2]\n'
    (papers.STUDIES / "tiny.toml").write_text(SETTINGS + tuned, "utf-8")
    commit(monkeypatch, at_s=1, settings=SETTINGS + tuned)
    fedsim.study(papers.STUDIES / "tiny.toml", out=folder, jobs=1, force=True)
    assert write(monkeypatch, folder) == 0  # 0.2 times lam, 15, is too large a step
    shutil.rmtree(next(folder.glob("tuning/pfedme*0.1-*")))
    assert write(monkeypatch, folder) == 1
    assert "missing or failed, such as tuning/pfedme" in capsys.readouterr().err


def test_a_run_that_has_diverged_is_in_the_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = next(folder.glob("local*seed1")) / "summary.json"
    summary = json.loads(file.read_text())
    summary |= {"finite": False, "loss": summary["loss"] | {"personal_mean": None}}
    file.write_text(json.dumps(summary))
    assert write(monkeypatch, folder) == 0
    (row,) = [row for row in papers.read_result("tiny").rows if row["seed"] == "1" and "local" in row["cell"]]
    assert (row["loss"], row["accuracy"]) == ("", f"{100 * summary['accuracy']['personal_mean']:.4f}")


def test_comments_are_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "STUDIES", tmp_path)
    hashes = []
    for text in (SETTINGS, f"# why\n{SETTINGS}", SETTINGS.replace("rounds = 2", "rounds = 3")):
        (tmp_path / "tiny.toml").write_text(text, "utf-8")
        hashes.append(papers.settings_hash("tiny"))
    assert hashes[0] == hashes[1] != hashes[2]
