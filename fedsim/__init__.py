"""fedsim: what does federated learning cost on this fleet, to reach what accuracy, and for whom?

::

    import fedsim

    result = fedsim.run("quickstart", algorithm="fedmd", overrides={"run.rounds": 10})
    result.summary["accuracy"]["personal_mean"]
    result.rounds.to_pandas()
    result.model(client=3)

Nothing heavy is imported before one of these names is used. The import asks MKL for its strict mode
(:mod:`fedsim.mkl_mode`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedsim.mkl_mode import request_strict_mode

if TYPE_CHECKING:
    from fedsim.api.results import Comparison, Result
    from fedsim.api.runs import arun, extend, fork, load, resume, run
    from fedsim.api.sockets import join, serve
    from fedsim.api.studies import StudyResult, compare, study
    from fedsim.api.studies import open as open  # noqa: A004
    from fedsim.api.tracking import track
    from fedsim.errors import DataError, FedsimError, OutputError, RunError, ScenarioError, UserError
    from fedsim.page.live_page import LivePage
    from fedsim.scenario import Scenario

__version__ = "0.1.0"

request_strict_mode()

_PLACES = {
    "api.results": ("Comparison", "Result"),
    "api.runs": ("arun", "extend", "fork", "load", "resume", "run"),
    "api.sockets": ("join", "serve"),
    "api.studies": ("StudyResult", "compare", "open", "study"),
    "api.tracking": ("track",),
    "errors": ("DataError", "FedsimError", "OutputError", "RunError", "ScenarioError", "UserError"),
    "page.live_page": ("LivePage",),
    "scenario": ("Scenario",),
}

# Without `open`: a star import must not hide the builtin.
__all__ = [
    "Comparison",
    "DataError",
    "FedsimError",
    "LivePage",
    "OutputError",
    "Result",
    "RunError",
    "Scenario",
    "ScenarioError",
    "StudyResult",
    "UserError",
    "__version__",
    "arun",
    "compare",
    "extend",
    "fork",
    "join",
    "load",
    "resume",
    "run",
    "serve",
    "study",
    "track",
]


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            import_module("fedsim.system").check_system()
            globals()[name] = value = getattr(import_module(f"fedsim.{place}"), name)
            return value
    raise AttributeError(f"module 'fedsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "open"})
