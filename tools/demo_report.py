"""What `make demo` shows, made for the manual, which is built with this (``docs/conf.py``)."""

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

from fedsim.figures.base import Section
from fedsim.figures.drawing import write_figures
from fedsim.page.write_report import REPORT, page_of

ROOT = Path(__file__).parents[1]
EXTRA = ROOT / "build" / "manual"
"""What is put beside the manual's pages as it is."""
SHOWN = "accuracy-by-time"
"""The figure that stands for the report."""


def demo(folder: Path) -> str:
    """Run the Makefile's comparison, with its report, into a folder; return its standard output.

    Raises:
        RuntimeError: The command failed; the message is its standard error.
    """
    (options,) = re.findall(r"fedsim (compare .*)", (ROOT / "Makefile").read_text("utf-8"))
    command = [sys.executable, "-m", "fedsim", *shlex.split(options), "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def picture() -> str:
    """Do the demo's comparison, leave its report beside the pages, and return a figure that leads to it."""
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
