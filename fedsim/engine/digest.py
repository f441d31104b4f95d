"""Digests of jobs: equal where the result must be equal, on every host and in every process.

A digest covers everything in the job that decides its result: a step by the dotted path of its class with all
its settings, functions by their dotted paths, models and arrays by every byte, and the order of mappings. It
does not cover what the job only names and the whole run shares: the data set, what an architecture's label
stands for, and the code behind a path. Nor does it cover what a :class:`Call` costs, which decides when the
result is there and not what it is.
"""

from __future__ import annotations

import sys
from typing import Any

from fedsim import walk
from fedsim.engine.jobs import Call, Job
from fedsim.quoting import quoted


def digest(job: Job) -> str:
    """Return the digest of a job, 32 hexadecimal characters.

    Raises:
        ValueError: It has a function or a class that no dotted path leads to, such as a lambda.
        TypeError: It holds something that is neither a record, a mapping, a sequence, an array, a function
            nor a plain value.
    """
    return walk.digest(("call", job.function, job.arguments) if isinstance(job, Call) else job, path_of)


def path_of(named: Any) -> str:
    """Return the dotted path of a function or a class.

    Raises:
        TypeError: It is neither.
        ValueError: None leads to it: it is a lambda, a method of one object, or made inside a function.
    """
    if not callable(named):
        raise TypeError(
            f"a job holds {quoted(named)}, a {type(named).__name__}, which has no digest: use records, "
            "mappings, tuples, NumPy arrays of numbers or texts, functions at module level and plain values"
        )
    module, full_name = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    # Some of torch's functions are methods of a hidden class, offered at the top of the module.
    for name in (full_name, getattr(named, "__name__", None)):
        if isinstance(module, str) and isinstance(name, str) and _at(module, name) is named:
            return f"{module}.{name}"
    raise ValueError(
        f"a job names {full_name or type(named).__name__!r} of {module or 'no module'}, and no dotted path "
        "leads there: define it with def or class at the top of a module, and give it what it needs as "
        "settings of a frozen record, as arguments or as extras"
    )


def _at(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
