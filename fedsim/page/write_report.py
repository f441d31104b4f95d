"""Writing the report of a folder of results."""

from __future__ import annotations

from pathlib import Path

from fedsim.durable import telling
from fedsim.errors import OutputError, UserError
from fedsim.figures.drawing import write_figures
from fedsim.page.html import GENERATOR, html
from fedsim.page.page import Page
from fedsim.page.run_page import run_page
from fedsim.page.study_page import study_page
from fedsim.report.atomic_folder import MARK, MEND, check_files, write_file
from fedsim.report.places import COMPARISON, STUDY

REPORT = "report.html"
"""The report of a study or a comparison, in its folder."""

_HEAD_BYTES = 1000
"""Within which a file says what has made it."""


def write_report(
    folder: Path,
    file: str | Path | None = None,
    *,
    figures: str | Path | None = None,
    rounds: tuple[int, int] | None = None,
    force: bool = False,
) -> Path:
    """Write the report of a run, a study or a comparison, and return its place.

    Args:
        folder: That of the results.
        file: The place; missing parents are made. If left out, ``report.html`` in the folder; or of a run,
            whose folder holds what a run leaves and nothing else, a file beside it with its name.
        figures: Where each figure goes as files of its own (:mod:`fedsim.figures.drawing`); nowhere if None.
        rounds: Of a run, the first and the last round that are shown client by client; the first ones if
            None.
        force: Whether a file there may be replaced that is no report, and files of figures.

    Raises:
        UserError: Figures are wanted, and matplotlib is not installed; or rounds that are not in the run, or
            of what is no run.
        OutputError: The folder holds no results, or damaged ones; or the place is occupied.
        FileError: The place cannot be written.
        ScenarioError: The folder of a study whose scenarios are not valid here.
    """
    place = report_place(folder) if file is None else Path(file)
    folder_of_figures = None if figures is None else Path(figures)
    for folder_of_files in filter(None, (place.parent, folder_of_figures)):
        whole = folder_of_files.resolve()
        if any((parent / MARK).is_file() for parent in (whole, *whole.parents)):
            raise OutputError(
                f"{folder_of_files} is in the folder of a run, which holds what the run leaves and nothing "
                "else: choose another place, such as beside the folder"
            )
    check_files([place], force=force or is_report(place))
    page = page_of(folder, rounds)
    content = html(page).encode()
    if folder_of_figures is not None:
        write_figures(page.sections, folder_of_figures, force=force)
    with telling(place, MEND):
        place.parent.mkdir(parents=True, exist_ok=True)
    write_file(place, content)
    return place


def page_of(folder: Path, rounds: tuple[int, int] | None = None) -> Page:
    """Return the page of what a folder holds.

    Args:
        folder: That of the results.
        rounds: Of a run, the first and the last round that are shown client by client; the first ones if
            None.

    Raises:
        OutputError: It holds no results, or damaged ones.
        UserError: Rounds are chosen that are not in the run, or of what is no run.
        ScenarioError: The folder of a study whose scenarios are not valid here.
    """
    if (folder / MARK).is_file():
        return run_page(folder, rounds)
    if (folder / STUDY).is_file() or (folder / COMPARISON).is_file():
        if rounds is not None:
            raise UserError(
                f"rounds are chosen for the report of one run, and {folder} holds several: name the folder "
                "of one of them, or leave out the rounds"
            )
        return study_page(folder)
    raise OutputError(
        f"{folder} holds no results: name the folder of a run, in which is {MARK}, of a comparison, in which "
        f"is {COMPARISON}, or of a study, in which is {STUDY}"
    )


def report_place(folder: Path) -> Path:
    """Return where the report of a folder goes whose user names no place."""
    if not (folder / MARK).is_file():
        return folder / REPORT
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}.html")


def is_report(file: Path) -> bool:
    """Whether a file is a page that fedsim has made."""
    try:
        with file.open("rb") as content:
            return GENERATOR.encode() in content.read(_HEAD_BYTES)
    except OSError:
        return False
