"""The colours of figures, the same on pages and in files.

Eight colours in a fixed order, each one in a tone for light paper and in one for a dark screen. They are
chosen so that readers with any of the three kinds of colour blindness can tell them apart, and so that each
has a contrast of 3 at least to its ground. Colour is never alone in saying which is which: lines differ in
their dashes too, and more than eight things use the colours again with other dashes.
"""

from __future__ import annotations

from collections.abc import Mapping

LIGHT = ("#444bc0", "#de7702", "#6f9e8d", "#a33262", "#03809f", "#726c04", "#6d3323", "#582281")
"""On light paper, :data:`LIGHT_GROUND`."""

DARK = ("#6584b4", "#e38c3f", "#a5daae", "#e69dee", "#70b0b4", "#f0d059", "#c06770", "#a788ea")
"""The same on a dark screen, :data:`DARK_GROUND`."""

LIGHT_GROUND = "#ffffff"

DARK_GROUND = "#16181d"

DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3), (14, 4), (4, 2, 1, 2, 1, 2))
"""How long the strokes and the gaps of a line are, in widths of it; the first is drawn through."""

HEAT_LIGHT = ("#f3f4fb", "#444bc0")
"""Least and most of a grid of cells on light paper."""

HEAT_DARK = ("#1f2430", "#8fb0e6")
"""The same on a dark screen."""

MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus")
"""Shapes of the points of the first group, and so on."""

ROLES: Mapping[str, int] = {
    "download": 0,
    "compute": 2,
    "upload": 1,
    "away": 3,
    "waiting": 5,
    "receive": 0,
    "transmit": 1,
    "tail": 4,
    "idle": 5,
    "useful": 0,
    "overhead": 5,
    "wasted": 6,
    "merged": 2,
    "dropped": 6,
    "rejected": 3,
}
"""Number of the colour of each part and phase that has the same one in all figures, by its label."""


def colour_number(number: int, label: str = "") -> int:
    """Return the number of the colour of a line, group or part, given its own, from 0, and its label."""
    return ROLES.get(label, number % len(LIGHT))
