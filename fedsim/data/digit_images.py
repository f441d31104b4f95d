"""Images of handwritten digits that come with fedsim, for the data sets made from them.

``digit_images.npz`` holds scikit-learn's ``load_digits``, bit for bit, so that reading them does not import
scikit-learn and scipy, which takes as long as importing torch.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsim.data.base import Indices

FILE = Path(__file__).with_suffix(".npz")
"""``images``: uint8 (1797, 8, 8), each in [0, 16]; ``digits``: uint8 (1797,)."""


def digit_images() -> tuple[NDArray[np.float32], Indices]:
    """Return 1,797 images of 8 by 8 pixels, (1797, 64) in [0, 1], and the digits that they show, (1797,)."""
    with np.load(FILE) as arrays:
        images, digits = arrays["images"], arrays["digits"]
    return images.reshape(-1, 64).astype(np.float32) / 16, digits.astype(np.int64)
