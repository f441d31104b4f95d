"""What a process of an emulation does before the clock starts, so that its first rounds are like the others.

The first time that a process counts the operations of a step, or trains, takes a thousand times as long as
the second.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from fedsim import plugins
from fedsim.errors import RunError
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.runtime.run import run

COUNTED_ROUNDS = 10
"""Rounds in which no one trains: operations are counted."""


def warm_up(parts: Parts) -> None:
    """Simulate a run's first rounds, and throw the results away."""
    parts = replace(parts, evaluation=EvaluationConfig(every=0), verify=False, until=None)
    null: Any = plugins.load("fedsim.engine.executors", "null")
    for executor, rounds in ((null(null.Config()), COUNTED_ROUNDS), (parts.executor, 1)):
        with suppress(RunError):  # the emulation will say so
            run(replace(parts, executor=executor), rounds=rounds)
