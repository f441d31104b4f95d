"""What runs have shown, read from their folders: summary, tables, models."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, NoReturn, overload

import pyarrow as pa

from fedsim.errors import UserError
from fedsim.models import Architecture, Architectures
from fedsim.page.write_report import write_report
from fedsim.report import cost_breakdown, run_columns
from fedsim.report.atomic_folder import check_files, check_folders, staged, write_file
from fedsim.report.cost_breakdown import Summary
from fedsim.report.places import TABLES
from fedsim.report.read_parquet import read_table
from fedsim.report.read_results import read_checked
from fedsim.report.run_energy import run_energy
from fedsim.report.run_text import run_blocks, run_text
from fedsim.report.saved_models import MODELS, EndModels, read_models, write_models
from fedsim.report.summary import read_summary
from fedsim.report.tables import arrow_rows
from fedsim.report.text_table import TextTable, to_html
from fedsim.scenario import Scenario, load_scenario
from fedsim.scenario.load import Overrides
from fedsim.studies import comparison
from fedsim.studies.answer_files import FILES, answer_rows, read_folder
from fedsim.studies.study_columns import ANSWERS

if TYPE_CHECKING:
    from torch import nn


_NO_EDGES = "add [[edge]] to the scenario before it"
_UNCOUNTED = "set evaluation.per_class = true before it"


class Temporary:
    """A temporary folder, which is removed when nobody holds this object any more, or when Python ends."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="fedsim-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __reduce__(self) -> NoReturn:
        raise UserError("a result in a temporary folder cannot be pickled: give out=, or save() it first")


class Result:
    """A run that has come to its end.

    Its tables are Arrow tables: ``result.rounds.to_pandas()``, ``polars.DataFrame(result.rounds)``, or
    anything else that takes the Arrow C stream interface. Each field has the ``description`` and the ``unit``
    of its column as metadata; TABLES.md has them too.

    Attributes:
        folder: The run's folder. A run without ``out`` has a temporary folder, which is removed with the
            result; :meth:`save` keeps a copy.
        summary: The run in numbers, as in ``summary.json`` (:mod:`fedsim.report.summary`).
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        models: EndModels | None = None,
        temporary: Temporary | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.summary: Summary = read_summary(self.folder)
        self._models = models
        self._temporary = temporary  # removed when nobody holds it any more

    @property
    def divergence(self) -> str | None:
        """In what way the run has diverged, and which rates may be too high; None if it has not."""
        text: str | None = self.summary.get("divergence")
        return text

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario, with every value written out."""
        return load_scenario(self.folder / "scenario.toml")

    @cached_property
    def rounds(self) -> pa.Table:
        """One row per round, and one each for what came before and after, if anything."""
        return self._table("rounds")

    @cached_property
    def clients(self) -> pa.Table:
        """One row per client of the population, selected or not."""
        return self._table("clients")

    @cached_property
    def client_classes(self) -> pa.Table:
        """One row per client and class of which it has training samples; of a classification.

        Raises:
            UserError: The run has no such table.
        """
        return self._table("client_classes", "its data set has no samples of classes")

    @cached_property
    def dispatches(self) -> pa.Table:
        """One row per dispatch: where its time went, and how it ended."""
        return self._table("dispatches")

    @cached_property
    def messages(self) -> pa.Table:
        """One row per frame."""
        return self._table("messages")

    @cached_property
    def evaluations(self) -> pa.Table:
        """One row per evaluation and client measured."""
        return self._table("evaluations")

    @cached_property
    def classes(self) -> pa.Table:
        """One row per evaluation, test set and class; under ``evaluation.per_class``.

        Raises:
            UserError: The run did not count classes.
        """
        return self._table("classes", _UNCOUNTED)

    @cached_property
    def confusion(self) -> pa.Table:
        """One row per evaluation, test set, true and predicted class; under ``evaluation.per_class``.

        Raises:
            UserError: The run did not count classes.
        """
        return self._table("confusion", _UNCOUNTED)

    @cached_property
    def edge_messages(self) -> pa.Table:
        """One row per frame between an edge and the server.

        Raises:
            UserError: The run had no edges.
        """
        return self._table("edge_messages", _NO_EDGES)

    def model(self, client: int | None = None, *, name: str | None = None) -> nn.Module:
        """Return a trained model as a torch module, in evaluation mode, on the CPU.

        Args:
            client: Whose model; None for the one global model.
            name: Which of them: ``personal``, ``global``, or what else the algorithm evaluates. If left out,
                the global model, or of a client the one that stands for it: its personal model if there is
                one, else the global one.

        Raises:
            UserError: There is no such model, or several, or the run's folder holds none; the message says
                which there are.
        """
        if self._models is None:
            self._models = read_checked(self.folder, read_models)
        by_client = self._models.by_client
        if client is None:
            wanted = name or "global"
            models = {id(own[wanted]): own[wanted] for own in by_client.values() if wanted in own}
            if len(models) != 1:
                many = f"{len(models)} different {wanted} models" if models else f"no {wanted} model"
                first = next(iter(by_client))
                raise UserError(f"this run has {many}: name a client, as in model(client={first})")
            [model] = models.values()
        else:
            if client not in by_client:
                raise UserError(
                    f"client {client} has no model here: those of {len(by_client)} clients are kept, such as "
                    f"{next(iter(by_client))} (evaluation.clients says how many)"
                )
            own = by_client[client]
            wanted = name or ("personal" if "personal" in own else "global")
            if wanted not in own:
                raise UserError(f"client {client} has no {wanted} model: it has {', '.join(sorted(own))}")
            model = own[wanted]
        task = self._models.task
        architectures = Architectures(
            {
                label: Architecture(label, choice.make(), task)
                for label, choice in self.scenario.models.items()
            }
        )
        return architectures[model.architecture].module(model)

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Copy the run's folder to a place, whole or not at all, and return the place.

        The copy also holds the models, even if ``run.save_models`` is off and they are only in memory.

        Args:
            folder: The place; missing parents are made.
            force: Whether another run there may be replaced.

        Raises:
            OutputError: The place is occupied or cannot be written.
        """
        place = Path(folder)
        check_folders([place], force=force)
        with staged(place, force=force) as hidden:
            shutil.copytree(self.folder, hidden, dirs_exist_ok=True)
            if self._models is not None and not (hidden / MODELS).exists():
                write_models(hidden, self._models, place)
        return place

    def energy(self, overrides: Overrides = ()) -> pa.Table:
        """Return the estimated energy of each dispatch, J, with its client, round and label of the device.

        It follows from the finished phases, also of a run without ``[energy]``.

        Args:
            overrides: Powers that replace the scenario's, such as ``{"fleet.0.compute_power": "3 W"}``.

        Raises:
            UserError: Something else is to be replaced.
            ScenarioError: What is wrong with the values.
        """
        return run_energy(self.folder, overrides)[1]

    def write_report(
        self,
        file: str | Path,
        *,
        figures: str | Path | None = None,
        rounds: tuple[int, int] | None = None,
        force: bool = False,
    ) -> Path:
        """Write what `fedsim report` does, one HTML file with figures and tables, and return its place.

        Args:
            file: The place; missing parents are made.
            figures: The folder of the figures as files of their own, as SVG, PNG and PDF, with their data as
                CSV; they are not written if it is left out.
            rounds: The first and the last round that are shown client by client; the first ones if it is left
                out.
            force: Whether files of figures may be replaced, and a file that is no report.

        Raises:
            UserError: Figures are wanted, and matplotlib is not installed; or rounds that are not in the run.
            OutputError: The place is occupied, or the results are damaged.
        """
        return write_report(self.folder, file, figures=figures, rounds=rounds, force=force)

    def __repr__(self) -> str:
        return run_text(self.summary)

    def _repr_html_(self) -> str:
        return "".join(
            to_html(TextTable(("", ""), lines, text_columns=frozenset({0, 1}), title=heading))
            for heading, lines in run_blocks(self.summary)
        )

    def _table(self, name: str, lacking: str = "") -> pa.Table:
        """Return a table; ``lacking`` says why a run may have none."""
        file = self.folder / f"{name}.parquet"
        if lacking and not file.exists():
            raise UserError(f"this run has no table {name}: {lacking}")
        return read_table(file)


class Comparison:
    """Several runs of one scenario, side by side.

    A sequence of :class:`Result`; ``comparison["fedavg"]`` and ``comparison["fedavg", 1]`` name one by its
    algorithm, and its seed.

    Attributes:
        folder: The folder of the run folders and the tables. A comparison without ``out`` has a temporary
            folder, which is removed with the results; :meth:`save` keeps a copy.
        runs: The results, in the order in which they were run.
    """

    def __init__(self, folder: Path, runs: Sequence[Result]) -> None:
        self.folder = folder
        self.runs = tuple(runs)

    @property
    def summaries(self) -> list[Summary]:
        """What each run comes to."""
        return [run.summary for run in self.runs]

    @cached_property
    def table(self) -> pa.Table:
        """One row per run, with the columns of ``comparison.csv``."""
        return arrow_rows(run_columns.COMPARISON, comparison.flat_rows(self.summaries))

    @cached_property
    def answers(self) -> pa.Table:
        """One row per algorithm and accuracy to be reached: the columns of ``answers.csv``."""
        return arrow_rows(ANSWERS, answer_rows(read_folder(self.folder)))

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Save every run into a folder, as :meth:`Result.save` does, then the tables, and return the folder.

        Args:
            folder: The folder of the run folders; it and missing parents are made.
            force: Whether other results there may be replaced.

        Raises:
            OutputError: A place in the folder is occupied or cannot be written, found before anything is.
        """
        place = Path(folder)
        folders = [place / run.folder.name for run in self.runs]
        check_folders(folders, force=force)
        tables = [table for table in (*TABLES, *FILES) if (self.folder / table).exists()]
        check_files([place / table for table in tables], force=force)
        for run, its_folder in zip(self.runs, folders, strict=True):
            run.save(its_folder, force=force)
        for table in tables:
            write_file(place / table, read_checked(self.folder / table, Path.read_bytes))
        return place

    def write_report(
        self, file: str | Path, *, figures: str | Path | None = None, force: bool = False
    ) -> Path:
        """Write the report of the comparison, as :meth:`Result.write_report` does that of a run."""
        return write_report(self.folder, file, figures=figures, force=force)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, key: str | int | tuple[str, int]) -> Result: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Result]: ...
    def __getitem__(self, key: str | int | slice | tuple[str, int]) -> Result | Sequence[Result]:
        if isinstance(key, int | slice):
            return self.runs[key]
        algorithm, seed = (key, None) if isinstance(key, str) else key
        matching = [
            run
            for run in self.runs
            if run.summary["algorithm"] == algorithm and seed in (None, run.summary["seed"])
        ]
        if len(matching) == 1:
            return matching[0]
        there = ", ".join(str((run.summary["algorithm"], run.summary["seed"])) for run in self.runs)
        raise KeyError(f"{key!r} names {'several runs' if matching else 'no run'}; there are: {there}")

    def _grids(self) -> list[TextTable]:
        return [comparison.table(self.summaries), cost_breakdown.table(self.summaries)]

    def __repr__(self) -> str:
        return "\n\n".join(
            "\n".join([*grid.lines(), *(f"  {note}" for note in grid.notes)]) for grid in self._grids()
        )

    def _repr_html_(self) -> str:
        return "".join(map(to_html, self._grids()))
