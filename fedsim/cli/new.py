"""``fedsim new`` and ``fedsim devices import``: files to start from."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import cast

from fedsim import example_files
from fedsim.cli.console import note, say
from fedsim.errors import UserError
from fedsim.fleet.device_class import DevicePlugin
from fedsim.fleet.entries import DEVICES
from fedsim.fleet.power_profile import device_class_source, read_power_profile
from fedsim.plugins import load
from fedsim.quoting import nearest, quoted
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


def import_device(file: Path, like: str, name: str, out: Path | None, force: bool) -> None:
    """Make a device class from a power profile."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UserError(f"{quoted(name)} cannot name a class: write letters, digits and '_', such as Pixel8")
    base = cast("type[DevicePlugin]", load(DEVICES, like))
    if out is not None and not (out.suffix == ".py" and out.stem.isidentifier()):
        raise UserError(f"{out} cannot be imported: write letters, digits and '_', and .py, such as phone.py")
    source = device_class_source(read_power_profile(file), base, name, f"{file.name} (Android)")
    if out is None:
        say(source.rstrip())
        return
    check_files([out], force=force)
    write_file(out, source.encode())
    note(f"wrote {out}: with its folder on Python's path, name it as device = {f'{out.stem}.{name}'!r}")
