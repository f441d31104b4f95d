"""The Dockerfile and Binder's files name what is there. Docker itself is not run."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COPIED = {file for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.M) for file in line.split()}
BINDER = ROOT / ".binder"


def test_what_is_copied_is_there_and_not_ignored() -> None:
    assert [file for file in COPIED if not (ROOT / file).exists()] == []
    kept = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert set(kept) == COPIED


def test_what_the_package_is_built_from_is_copied() -> None:
    project, wheel = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = ["pyproject.toml", project["readme"], *project["license-files"], *wheel["packages"]]
    assert {Path(file).parts[0] for file in [*needed, *wheel["force-include"]]} <= COPIED


def test_installs_go_through_the_constraints_and_leave_cuda_out() -> None:
    [folder] = re.findall(r"^ARG PIP_CONSTRAINT=(.+)/constraints.txt$", DOCKERFILE, re.M)
    first, *_ = re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.M)
    assert folder == first  # where COPY puts the file
    [index] = re.findall(r"^ARG PIP_EXTRA_INDEX_URL=(.+)$", DOCKERFILE, re.M)
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    assert f"--extra-index-url {index}" in lines
    [constraints] = [line.removeprefix("-c ") for line in lines if line.startswith("-c ")]
    # pip looks beside the file that names it.
    assert (BINDER / constraints).resolve() == ROOT / "constraints.txt"


def test_extras_are_those_of_the_package() -> None:
    for text in (DOCKERFILE, (BINDER / "requirements.txt").read_text()):
        [extras] = re.findall(r"\.\[(.+)\]", text)
        assert set(extras.split(",")) <= set(PYPROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    "found",
    [
        re.findall(r"^FROM python:([\d.]+)-slim$", DOCKERFILE, re.M),
        re.findall(r"^python-([\d.]+)$", (BINDER / "runtime.txt").read_text()),
    ],
    ids=["docker", "binder"],
)
def test_python_is_one_that_fedsim_supports(found: list[str]) -> None:
    [version] = found
    assert SpecifierSet(PYPROJECT["project"]["requires-python"]).contains(version)


def test_the_container_is_the_command_without_the_rights_of_root() -> None:
    [entry] = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.M)
    assert [PYPROJECT["project"]["scripts"].get(name) for name in json.loads(entry)] != [None]
    last_user = re.findall(r"^USER (.+)$", DOCKERFILE, re.M)[-1]
    assert f"useradd --create-home {last_user}" in DOCKERFILE
    [volume] = re.findall(r"^VOLUME (.+)$", DOCKERFILE, re.M)
    assert re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.M)[-1] == volume  # where runs/ is written
