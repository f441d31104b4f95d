"""The result of `make demo` for the manual (``docs/conf.py``)."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from fedsim.figures.chart_types import Section
from fedsim.figures.drawing import write_figures
from fedsim.page.write_report import REPORT, page_of

ROOT = Path(__file__).parents[1]
EXTRA = ROOT / "build" / "manual"
"""Files that are copied beside the manual's pages."""
SHOWN = "accuracy-by-time"
"""The figure that stands for the report."""


def demo(folder: Path) -> str:
    """Run the Makefile's comparison, with its report, into a folder; return its standard output."""
    (options,) = re.findall(r"fedsim (compare .*)", (ROOT / "Makefile").read_text("utf-8"))
    command = [sys.executable, "-m", "fedsim", *shlex.split(options), "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def picture() -> str:
    """Run the demo, copy its report beside the pages, and return a figure with a link to it."""
    shutil.rmtree(EXTRA, ignore_errors=True)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # Sphinx shows what others log
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        demo(runs)
        (EXTRA / "demo").mkdir(parents=True)
        shutil.copy(runs / REPORT, EXTRA / "demo" / "report.html")
        figures = [figure for section in page_of(runs).sections for figure in section.figures]
        (figure,) = [one for one in figures if one.name == SHOWN]
        write_figures([Section("", "", [figure])], Path(folder) / "figures")
        shutil.copy(Path(folder) / "figures" / f"{SHOWN}.svg", EXTRA / "demo")
    about = escape(f"{figure.title}. {figure.text}")
    image = f'<img class="figure" src="demo/{SHOWN}.svg" alt="{about}">'
    return f'<p><a href="demo/report.html">{image}</a></p>'
