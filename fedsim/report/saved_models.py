"""The models with which a run has ended, as files: ``models/index.json``, and an ``.npz`` per distinct model.

An ``.npz`` holds ``params/NAME`` and ``buffers/NAME`` for each parameter and buffer of the torch module; it
can be read by ``numpy.load``. The index names the files of each evaluated client, and their architectures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import OutputError
from fedsim.params import Array, Model, Tree, freeze
from fedsim.report.atomic_folder import new
from fedsim.report.read_results import read_object, to_json
from fedsim.runtime.evaluation import ClientModels
from fedsim.task import Task

MODELS = "models"
"""The folder of the models, in the folder of a run."""


@dataclass(frozen=True, slots=True)
class EndModels:
    """The models with which a run has ended."""

    by_client: ClientModels
    task: Task


def write_models(folder: Path, models: EndModels, place: Path) -> None:
    """Write models into a folder of a run, each distinct one once."""
    (folder / MODELS).mkdir(exist_ok=True)  # an interrupted run may have begun with it
    files: dict[int, str] = {}
    architectures: dict[str, str] = {}
    for own in models.by_client.values():
        for model in own.values():
            if id(model) in files:
                continue
            name = files[id(model)] = f"{len(files)}.npz"
            architectures[name] = model.architecture
            with new(folder / MODELS / name, place) as file:
                arrays: dict[str, Any] = _named("params", model.params) | _named("buffers", model.buffers)
                np.savez(file, **arrays)
    index = {
        "task": asdict(models.task),
        "architectures": architectures,
        "clients": {
            str(client): {name: files[id(model)] for name, model in own.items()}
            for client, own in models.by_client.items()
        },
    }
    with new(folder / MODELS / "index.json", place) as file:
        file.write(to_json(index))


def read_models(folder: Path) -> EndModels:
    """Return the models that a run's folder holds."""
    place = folder / MODELS
    if not (place / "index.json").is_file():
        raise OutputError(f"{folder} holds no models: run with run.save_models = true to keep them")
    index = read_object(place / "index.json", ("architectures", "clients", "task"))
    read = {name: _read(place / name, label) for name, label in index["architectures"].items()}
    by_client = {
        int(client): {name: read[file] for name, file in own.items()}
        for client, own in index["clients"].items()
    }
    task = index["task"] | {"input_shape": tuple(index["task"]["input_shape"])}
    return EndModels(by_client, Task(**task))


def _named(part: str, tree: Tree) -> dict[str, Any]:
    return {f"{part}/{name}": array for name, array in tree.items()}


def _read(file: Path, architecture: str) -> Model:
    trees: dict[str, dict[str, Array]] = {"params": {}, "buffers": {}}
    with np.load(file, allow_pickle=False) as arrays:
        for key in arrays.files:
            part, _, name = key.partition("/")
            trees[part][name] = arrays[key]
    return Model(architecture, freeze(trees["params"]), freeze(trees["buffers"]))
