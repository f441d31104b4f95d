"""The log of a run: structured events; who stamps and writes them is decided above."""

from __future__ import annotations

from typing import Any, Protocol

import structlog


class Log(Protocol):
    """What the run needs of a logger."""

    def info(self, event: str, **values: Any) -> Any:
        """Note something ordinary."""

    def warning(self, event: str, **values: Any) -> Any:
        """Note something that a reader may have to know."""


def silent() -> Log:
    """Return a logger that writes nothing."""
    log: Log = structlog.wrap_logger(None, processors=[_drop])
    return log


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent
