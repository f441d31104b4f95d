"""The ``[data]`` table of a scenario file: the data set, what is held out of it, and who holds the rest."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator
from pydantic.functional_validators import AfterValidator

from fedsim.config import AsTuple, Config
from fedsim.data import DatasetPlugin, Shares, shares_fault
from fedsim.data.public import Augment
from fedsim.quoting import quoted
from fedsim.ranges import PartialShare, PositiveSamples, Samples
from fedsim.scenario.choices import DATASET, PARTITION, Choice, Params, fault, left_out, spelt_out

DEFAULT_SPLIT: Shares = (0.7, 0.1, 0.2)


class PublicSource(Choice):
    """Another data set."""

    KIND = DATASET
    name: str
    """Data set: a file of ``fedsim/data``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the data set."""


class PublicConfig(Config):
    """The public set, on which knowledge is exchanged; nobody trains on its labels unless told to."""

    size: Samples = 0
    """Samples in the public set; without any there is none, and nothing else can be said about it."""
    users: PartialShare = 0.0
    """Instead of size, a share of the users, those of the global test set apart: all samples of theirs."""
    source: Annotated[PublicSource, BeforeValidator(spelt_out, str | PublicSource)] | None = None
    """Another data set to draw it from, without labels: a name, or a table of name and params; the public set
    is held out of the data set itself if left out."""
    augment: Augment = "none"
    """How its images are transformed, once: fedet crops, flips, jitters colours and rotates at random."""
    held: Literal["everywhere", "server"] = "everywhere"
    """Who holds it from the start; what only the server holds it has to send."""


class PartitionChoice(Choice):
    """Who holds which sample."""

    KIND = PARTITION
    name: str = "iid"
    """Partition: a file of ``fedsim/data/partitions``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the partition."""


def _shares(shares: Shares) -> Shares:
    if problem := shares_fault(shares):
        raise fault("shares", problem, "write for example [0.7, 0.1, 0.2]")
    return shares


def _form(split: Any) -> str:
    first = split[0] if isinstance(split, list | tuple) and split else None
    return "several" if isinstance(first, list | tuple) else "one"


OneSplit = Annotated[Shares, AsTuple, AfterValidator(_shares)]
Splits = Annotated[
    Annotated[OneSplit, Tag("one")] | Annotated[tuple[OneSplit, ...], AsTuple, Tag("several")],
    Discriminator(_form),
]


class DataConfig(Choice):
    """The data set, and how it is spread over the clients."""

    KIND = DATASET
    name: str = "digits"
    """Data set: a file of ``fedsim/data``, or a dotted path."""
    params: Params = left_out()
    """Parameters of the data set."""
    root: Annotated[str, Field(min_length=1)] | None = None
    """Folder of data sets, relative to the working directory; FEDSIM_DATA if left out."""
    limit: PositiveSamples | None = None
    """Use only so many samples, equally many of each class (where there are no classes, or where samples have
    users: at random); all if left out."""
    split: Splits | None = Field(None, validate_default=True)
    """Shares of each client's samples for train, validation and test, [0.7, 0.1, 0.2] if left out; or a list
    of such, one of which each client draws."""
    global_test: PartialShare = 0.0
    """Share of all samples held out as the global test set, where the data set has no test part itself."""
    global_test_users: PartialShare = 0.0
    """Instead, a share of the users: all samples of theirs, and no client is one of them."""
    public: PublicConfig = PublicConfig()
    """The public set."""
    partition: Annotated[PartitionChoice, BeforeValidator(spelt_out, str | PartitionChoice)] | None = Field(
        None, validate_default=True
    )
    """Who holds which sample: a name, or a table of name and params; iid if left out."""

    @field_validator("limit", "split", "partition", mode="before")
    @classmethod
    def _suits(cls, value: Any, info: ValidationInfo) -> Any:
        # A data set of counts has nothing to draw from, to split and to spread; any other must be spread.
        if "name" not in info.data:
            return value
        plugin = DATASET.find(info.data["name"])
        assert issubclass(plugin, DatasetPlugin)  # noqa: S101
        if plugin.has_samples:
            defaults: dict[str, Any] = {"split": DEFAULT_SPLIT, "partition": {}}
            return defaults.get(info.field_name or "") if value is None else value
        if value is not None:
            problem = f"data set {quoted(info.data['name'])} has sample counts only, so there is nothing to"
            act = {"limit": "draw from", "split": "split", "partition": "spread"}[info.field_name or ""]
            raise fault("counts", f"{problem} {act}", f"leave data.{info.field_name} out")
        return value
