"""The ways in which jobs are done that could be done together, for ``run.json``."""

from __future__ import annotations

from collections import Counter

Ways = Counter[str]
"""How many jobs were done in which way."""

TOGETHER = "together"
"""With others, at once; the other ways are reasons for which a job was done by itself."""
ALONE = "alone"
"""No other was there."""
TOO_FEW = "too few alike"
"""Too few others have batches of its size for a gain."""
OTHER_BITS = "other bits together"
"""A check has found a difference."""
NOT_FINITE = "not finite"
"""Its results would be NaN or infinite, and the sign of a NaN depends on the kernel."""
FAILED = "failed together"
"""One of those that were tried together has failed."""
