"""The notebook for hosted services can be executed, and installs the package under its name."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import manual_blocks
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NOTEBOOK = json.loads((manual_blocks.DOCS / "notebooks" / "first_run.ipynb").read_text("utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
INSTALLATION, *OTHERS = ["".join(cell["source"]) for cell in CODE]
PROJECT = tomllib.loads((manual_blocks.DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]


def test_it_holds_no_outputs_of_one_machine() -> None:
    assert [cell for cell in CODE if cell["outputs"] or cell["execution_count"] is not None] == []


def test_it_installs_the_package_under_its_name() -> None:
    [text] = re.findall(r'%pip install --quiet "(.+)"', INSTALLATION)
    sources: dict[str, Any] = {}
    exec(re.findall(r"^SOURCES = .+$", INSTALLATION, re.M)[0], sources)  # noqa: S102
    requirement = Requirement(text.format(**sources))
    assert canonicalize_name(requirement.name) == PROJECT["name"]
    assert requirement.extras <= set(PROJECT["optional-dependencies"])
    assert requirement.url == sources["SOURCES"]


def test_it_installs_nothing_where_fedsim_is() -> None:
    inputs = pytest.importorskip("IPython.core.inputtransformer2", reason="IPython is in the extra jupyter")
    cell = inputs.TransformerManager().transform_cell(INSTALLATION)
    assert "get_ipython().run_line_magic('pip'" in cell
    exec(cell, {})  # noqa: S102 - "get_ipython" is not defined here


@pytest.mark.slow
def test_its_cells_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.close("all")  # figures of other tests
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in OTHERS:
        exec(re.sub(r'("run\.rounds": )\d+', r"\g<1>2", cell), names)  # noqa: S102
    assert [result.summary["algorithm"] for result in names["comparison"]] == ["local", "fedavg", "fedmd"]
    # Two rounds each, and what FedMD does before the first.
    assert [len(line.get_xdata()) for line in pyplot.gca().lines] == [2, 2, 3]
    assert (tmp_path / "comparison.html").stat().st_size > 10_000
