"""Only sample counts, drawn for each client, for system studies in which nothing is learned.

Such a run needs the ``null`` executor. The counts of a million clients take eight megabytes.
"""

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from fedsim.config import AsTuple, Config
from fedsim.data.base import Counts, Dataset, DatasetPlugin, LoadContext
from fedsim.ranges import MAX_SAMPLES, Classes, PositiveSamples, Samples
from fedsim.task import Task

MAX_VALUES = 10**8
"""Most numbers in one sample."""


class Uniform(Config):
    """Each number from ``low`` to ``high`` equally likely."""

    distribution: Literal["uniform"]
    """Which distribution this is: a uniform one."""
    low: Samples
    """Fewest training samples of a client; 0 gives clients that never take part."""
    high: PositiveSamples
    """Most training samples of a client."""

    @model_validator(mode="after")
    def _ordered(self) -> "Uniform":
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}; swap them")
        return self


class Lognormal(Config):
    """Many small clients and a few large ones: the logarithm of the count is normal."""

    distribution: Literal["lognormal"]
    """Which distribution this is: a log-normal one."""
    median: PositiveSamples
    """Median number of training samples of a client; every client has at least one, and at most a thousand
    million."""
    sigma: Annotated[float, Field(ge=0, le=5)]
    """Standard deviation of the natural logarithm; at 1, one client in six holds over e times the median."""


def _form(value: Any) -> str | None:
    if isinstance(value, int):
        return "number"
    return value.get("distribution") if isinstance(value, dict) else getattr(value, "distribution", None)


Draw = Annotated[
    Annotated[Samples, Tag("number")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[Lognormal, Tag("lognormal")],
    Discriminator(
        _form,
        custom_error_type="samples_form",
        custom_error_message="samples is a whole number, or a table with distribution = uniform or lognormal",
    ),
]


def _not_too_large(shape: tuple[int, ...]) -> tuple[int, ...]:
    if math.prod(shape) > MAX_VALUES:
        raise ValueError(
            f"{' x '.join(map(str, shape))} is {math.prod(shape)} numbers in each sample: give a shape of "
            f"at most {MAX_VALUES}"
        )
    return shape


Shape = Annotated[
    tuple[Annotated[int, Field(ge=1, le=MAX_VALUES)], ...],
    AsTuple,
    Field(min_length=1, max_length=8),
    AfterValidator(_not_too_large),
]


class SizesConfig(Config):
    """Settings of a data set of counts only."""

    samples: Draw = 100
    """Training samples of a client: a number, or a table: ``distribution`` with ``low`` and ``high``
    (uniform), or with ``median`` and ``sigma`` (lognormal)."""
    input_shape: Shape = (1, 28, 28)
    """Shape of one sample, which decides the size of models and the cost of training."""
    num_classes: Annotated[Classes, Field(ge=2)] = 10
    """Classes, which decide the size of the output layer and of exchanged logits."""


class Sizes(DatasetPlugin[SizesConfig]):
    """Sample counts without samples."""

    has_samples = False

    def load(self, context: LoadContext) -> Dataset:
        """Return one count for each client of the run."""
        task = Task(self.config.input_shape, self.config.num_classes)
        return Dataset(task, sizes=self._draw(context))

    def _draw(self, context: LoadContext) -> Counts:
        samples, generator = self.config.samples, context.key.numpy()
        match samples:
            case int():
                return np.full(context.num_clients, samples, np.int64)
            case Uniform():
                return generator.integers(
                    samples.low, samples.high, context.num_clients, np.int64, endpoint=True
                )
            case Lognormal():
                factors = np.exp(samples.sigma * generator.standard_normal(context.num_clients))
                drawn = np.clip(np.rint(samples.median * factors), 1, MAX_SAMPLES)
                counts: Counts = drawn.astype(np.int64)
                return counts


PLUGIN = Sizes
