"""What a server tells a process that joins: versions, and the scenario from which both build their parts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from fedsim import __version__
from fedsim.errors import UserError

FORMAT = 1
"""Of greetings, and of what processes of a run say to one another beside frames."""

MOST_BYTES = 1 << 20
"""Longest greeting."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """A server's greeting.

    Attributes:
        scenario: The resolved scenario, in TOML.
        algorithm: Name of the algorithm, for people.
        fedsim: Version of fedsim at the server.
        format: :data:`FORMAT` of the server.
    """

    scenario: str
    algorithm: str
    fedsim: str = __version__
    format: int = FORMAT

    def encode(self) -> bytes:
        """Return the greeting as bytes."""
        return json.dumps(asdict(self)).encode()


def read(data: bytes) -> Greeting:
    """Return the greeting that bytes stand for.

    Raises:
        UserError: They are none, or of a server with another version, with which models would not be those
            of one program.
    """
    try:
        said: Any = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        said = None
    version = said.get("fedsim") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(version, str):
        raise UserError("what answers there is no fedsim server: check the address and the port")
    if (version, said.get("format")) != (__version__, FORMAT):
        raise UserError(
            f"the server runs fedsim {version:.40} (format {said.get('format')!r:.20}), this is fedsim "
            f"{__version__} (format {FORMAT}): install the same version on both sides"
        )
    scenario, algorithm = said.get("scenario"), said.get("algorithm")
    if not (isinstance(scenario, str) and isinstance(algorithm, str)):
        raise UserError("the server's greeting is damaged: check that both sides are the same fedsim")
    return Greeting(scenario, algorithm)
