"""Synthetic handwriting: fedsim's digits, drawn by many writers."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedsim.config import Config
from fedsim.data.base import Counts, Dataset, DatasetPlugin, Indices, LoadContext, room
from fedsim.data.digit_images import digit_images
from fedsim.ranges import Clients, Concentration
from fedsim.rng import Key
from fedsim.task import Task

SOURCE = 8
"""Height and width of the source images, in pixels."""
NUM_CLASSES = 10

MAX_IMAGES = 10**6
"""Upper bound of the settings that count the images of a writer."""

_LOWER = "num_writers, samples_per_writer or size"

_MARGIN = 0.12
"""Blank part of the page at each side, for a writer of average size and position."""
_STEEPNESS = 2.5
"""Slope of the pen's ramp from blank to ink."""


class WritersConfig(Config):
    """Settings of the writers."""

    num_writers: Clients | None = None
    """Number of writers; without it, one for each client."""
    samples_per_writer: float = Field(default=199.0, ge=1, le=MAX_IMAGES)
    """Mean number of images per writer before ``least`` and ``most`` apply. With the defaults, these lower it
    to FEMNIST's mean."""
    deviation: float = Field(default=82.0, ge=0, le=MAX_IMAGES)
    """Standard deviation of the number of images per writer before ``least`` and ``most`` apply; 0 gives all
    writers equally many."""
    least: int = Field(default=16, ge=1, le=MAX_IMAGES)
    """Fewest images of a writer."""
    most: int = Field(default=418, ge=1, le=MAX_IMAGES)
    """Most images of a writer."""
    size: int = Field(default=28, ge=8, le=64)
    """Height and width of an image, in pixels."""
    style: float = Field(default=1.0, ge=0, le=2)
    """How much writers differ: with 0 all write alike, and 1 is an ordinary spread."""
    wobble: float = Field(default=0.06, ge=0, le=0.5)
    """Standard deviation of the noise on each inked source pixel, so that no two images are the same."""
    preference: Concentration | None = None
    """Concentration of the Dirichlet law from which each writer's shares of the digits are drawn: the
    smaller, the more unequal. Without it, all digits are equally likely."""

    @model_validator(mode="after")
    def _least_is_not_above_most(self) -> "WritersConfig":
        if self.least > self.most:
            raise ValueError(f"least = {self.least} is above most = {self.most}")
        return self


class Writers(DatasetPlugin[WritersConfig]):
    """Handwritten digits in the styles of many writers, made from fedsim's ``digits``; no files.

    Each writer has a slant, size, width, rotation, position on the page and pen, and draws every digit with
    them. This is a substitute for FEMNIST's natural split that needs no files: images differ by writer as
    well as by class, and the number of images per writer is log-normal with FEMNIST's mean and deviation (004
    table 2: mean 197.53, standard deviation 76.69, from 16 to 418).

    A style consists of an affine map from the 8 by 8 source to the page, with interpolation between pixels,
    and a pen: a ramp from blank to ink, whose middle decides how thick lines are. All images of a writer are
    computed at once.
    """

    def load(self, context: LoadContext) -> Dataset:
        """Draw all images, of shape (1, size, size); there is no test part."""
        config, key = self.config, context.key
        counts = sizes(config, config.num_writers or context.num_clients, key)
        # Before anything else is drawn, so that a data set that does not fit into memory fails at once.
        x = room((int(counts.sum()), config.size**2), np.float32, _LOWER)
        users = np.repeat(np.arange(len(counts)), counts)
        source, digits = digit_images()
        by_class = [np.flatnonzero(digits == number) for number in range(NUM_CLASSES)]
        y = _labels(config, counts, key.child("labels").numpy())
        # Uniform positions in the class: a draw is below 1, so its product is below the length, also rounded.
        lengths = np.array([len(positions) for positions in by_class])
        place = (key.child("shapes").numpy().random(len(y)) * lengths[y]).astype(np.int64)
        shapes = np.concatenate(by_class)[(np.cumsum(lengths) - lengths)[y] + place]
        styles = _styles(config, len(counts), key.child("styles").numpy())
        page = _page(config.size)
        ends, generator = np.cumsum(counts), key.child("wobble").numpy()
        for style, start, end in zip(styles, ends - counts, ends, strict=True):
            strokes = source[shapes[start:end]]
            strokes += config.wobble * generator.standard_normal(strokes.shape, np.float32) * (strokes > 0)
            x[start:end] = _inked(_placed(np.ascontiguousarray(strokes.T), page, style), style[6]).T
        x = x.reshape(-1, 1, config.size, config.size)
        return Dataset(Task(x.shape[1:], NUM_CLASSES), x, y, users=users)


def sizes(config: WritersConfig, num_writers: int, key: Key) -> Counts:
    """Return the number of images of each writer, int64 (num_writers,): log-normal, within the limits."""
    variance = np.log1p((config.deviation / config.samples_per_writer) ** 2)
    middle = np.log(config.samples_per_writer) - variance / 2
    drawn = key.child("sizes").numpy().lognormal(middle, np.sqrt(variance), num_writers)
    return np.clip(np.rint(drawn), config.least, config.most).astype(np.int64)


def _labels(config: WritersConfig, counts: Counts, generator: np.random.Generator) -> Indices:
    total = int(counts.sum())
    if config.preference is None:
        return generator.integers(NUM_CLASSES, size=total)
    shares = generator.dirichlet(np.full(NUM_CLASSES, config.preference), len(counts))
    ends = np.repeat(np.cumsum(shares[:, :-1], axis=1), counts, axis=0)
    labels: Indices = (generator.random(total)[:, None] >= ends).sum(axis=1)
    return labels


def _styles(config: WritersConfig, num_writers: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return (num_writers, 7): a 2 by 2 matrix from source to page, an offset, and the middle of the pen.

    Coordinates on the page and in the source go from -1 to 1, to the right and down.
    """
    slant, size, width, turn, right, down, pen = generator.normal(0, config.style, (7, num_writers))
    # Clipped, so that no digit leaves the page or has no ink.
    size, width = (np.exp(np.clip(0.12 * value, -0.3, 0.3)) for value in (size, width))
    slant, turn = np.clip(0.25 * slant, -0.6, 0.6), np.clip(0.1 * turn, -0.3, 0.3)
    along, up = (1 - _MARGIN) * size * width, (1 - _MARGIN) * size / width
    cos, sin = np.cos(turn), np.sin(turn)
    # First scaled to the writer's width and height, then slanted (to the right at the top), then rotated.
    return np.stack(
        [
            cos * along,
            -(cos * slant + sin) * up,
            sin * along,
            (cos - sin * slant) * up,
            np.clip(0.06 * right, -0.15, 0.15),
            np.clip(0.06 * down, -0.15, 0.15),
            np.clip(0.45 + 0.12 * pen, 0.2, 0.7),
        ],
        axis=1,
    )


def _page(size: int) -> NDArray[np.float64]:
    """Return the coordinates of a page's pixels, (size**2, 2), row by row."""
    middles = (np.arange(size) + 0.5) * 2 / size - 1
    return np.stack(np.meshgrid(middles, middles), axis=-1).reshape(-1, 2)


def _inked(images: NDArray[np.float32], middle: np.float64) -> NDArray[np.float32]:
    """Apply a pen whose ramp has this middle, in place, and return the images in steps of 1/255."""
    images -= np.float32(middle)
    images *= _STEEPNESS
    images += np.float32(0.5)
    np.clip(images, 0, 1, out=images)
    # Real images are stored as bytes.
    images *= 255
    np.rint(images, out=images)
    images /= 255
    return images


def _placed(
    strokes: NDArray[np.float32], page: NDArray[np.float64], style: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return m source images, (64, m), mapped onto the page, (size**2, m).

    Each pixel is interpolated bilinearly from the four source pixels around its place.
    """
    places = (page - style[4:6]) @ np.linalg.inv(style[:4].reshape(2, 2)).T
    columns, rows = ((places + 1) * (SOURCE / 2) - 0.5).T
    left, top = np.floor(columns), np.floor(rows)
    images = np.zeros((len(page), strokes.shape[1]), np.float32)
    for column, row in ((left, top), (left + 1, top), (left, top + 1), (left + 1, top + 1)):
        weight = (1 - np.abs(columns - column)) * (1 - np.abs(rows - row))
        inside = np.flatnonzero((column >= 0) & (column < SOURCE) & (row >= 0) & (row < SOURCE))
        pixel = (row[inside] * SOURCE + column[inside]).astype(np.int64)
        images[inside] += strokes[pixel] * weight[inside, None].astype(np.float32)
    return images


PLUGINS = {"writers": Writers}
