import subprocess
from pathlib import Path

import pytest

from fedsim.processes.python_again import python, variables


@pytest.mark.parametrize("path", ["", ":", None])
def test_a_file_in_the_working_folder_hides_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    (tmp_path / "statistics.py").write_text("raise SystemExit(9)\n")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    command = python("-c", "import statistics, fedsim; print(fedsim.__version__)")
    subprocess.run(command, cwd=tmp_path, env=variables(), check=True, capture_output=True)  # noqa: S603


def test_the_path_of_this_process_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_plugin.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocess.run(python("-c", "import my_plugin"), env=variables(), check=True)  # noqa: S603
