"""Write ``fedsim/data/digit_images.npz`` from the digits that come with scikit-learn.

Run it only if they change; every result on them does so too::

    python tools/make_digit_images.py
"""

import numpy as np
from sklearn.datasets import load_digits

from fedsim.data.digit_images import FILE


def main() -> None:
    """Write the file."""
    bunch = load_digits()
    np.savez_compressed(FILE, images=bunch.images.astype(np.uint8), digits=bunch.target.astype(np.uint8))


if __name__ == "__main__":
    main()
