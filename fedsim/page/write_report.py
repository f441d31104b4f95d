"""Writing the report of a folder of results."""

from __future__ import annotations

from pathlib import Path

from fedsim.durable import telling
from fedsim.errors import OutputError, UserError
from fedsim.figures.drawing import write_figures
from fedsim.page.html import GENERATOR, html
from fedsim.page.page_content import Page
from fedsim.page.report_pages import run_page, study_page, validation_page
from fedsim.report.atomic_folder import MARK, MEND, check_files, write_file
from fedsim.report.places import kind_of

REPORT = "report.html"
"""The report of a study or a comparison, in its folder."""

_HEAD_BYTES = 1000
"""The mark of a report is in these bytes."""


def write_report(
    folder: Path,
    file: str | Path | None = None,
    *,
    figures: str | Path | None = None,
    rounds: tuple[int, int] | None = None,
    force: bool = False,
) -> Path:
    """Write the report of a folder of results, and return its place (:func:`report_place`).

    ``figures`` is a folder for the figures as files; ``rounds`` are the first and the last round of a run
    that are shown client by client; ``force`` also replaces files that are no reports.
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
    """Return the page of a folder of results."""
    if kind_of(folder) == "run":
        return run_page(folder, rounds)
    if rounds is not None:
        raise UserError(
            f"rounds are chosen for the report of one run, and {folder} holds several: name the folder "
            "of one of them, or leave out the rounds"
        )
    return validation_page(folder) if kind_of(folder) == "validation" else study_page(folder)


def report_place(folder: Path) -> Path:
    """Return the default place of a report: in the folder, but beside that of a run."""
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
