"""``fedsim new``."""

from __future__ import annotations

from pathlib import Path

from fedsim import example_files
from fedsim.cli.console import note
from fedsim.errors import UserError
from fedsim.quoting import nearest
from fedsim.report.atomic_folder import check_files, write_file


def new(example: str, file: Path | None, force: bool) -> None:
    """Write an example scenario, and the files that it names, for the user to change."""
    known = [*example_files.names(), *example_files.names(studies=True)]
    if example not in known:
        raise UserError(f"no example is called {example!r}: {nearest(example, known)}")
    target = file or Path(f"{example.rpartition('/')[2]}.toml")
    contents = {target: example_files.file_of(example).read_bytes()}
    for companion in example_files.companions(example):
        contents[target.parent / companion.name] = companion.read_bytes()
    check_files(list(contents), force=force)
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
        note(f"wrote {path}")
    note(f"try it: fedsim {'study' if example_files.is_study(example) else 'check'} {target}")
