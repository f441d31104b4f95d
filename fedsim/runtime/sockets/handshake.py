"""What a server tells a process that joins: versions, and the scenario from which both build their parts.

With it comes the fingerprint of the server's data, since what the same scenario gives depends on files and
versions of libraries too, which nothing else would notice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedsim import __version__
from fedsim.data import FederatedData
from fedsim.data.fingerprints import differences, fingerprint
from fedsim.errors import UserError
from fedsim.quoting import printable, quoted
from fedsim.runtime.sockets.state_encoding import fits, hints_of

FORMAT = 2
"""Of greetings, and of what processes of a run say to one another beside frames."""

MOST_BYTES = 1 << 20
"""Longest greeting."""
_MOST_PART = 300
"""Longest part of a fingerprint, in characters."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """A server's greeting.

    Attributes:
        scenario: The resolved scenario, in TOML.
        algorithm: Name of the algorithm, for people.
        data: The fingerprint of the server's data.
        verify: Whether client processes check what can be checked there too.
        fedsim: Version of fedsim at the server.
        format: :data:`FORMAT` of the server.
    """

    scenario: str
    algorithm: str
    data: Mapping[str, str] = field(default_factory=dict)
    verify: bool = False
    fedsim: str = __version__
    format: int = FORMAT

    def encode(self) -> bytes:
        """Return the greeting as bytes."""
        return json.dumps(asdict(self)).encode()


def read(data: bytes) -> Greeting:
    """Return the greeting that bytes stand for."""
    try:
        said: Any = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        said = None
    version = said.get("fedsim") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(version, str):
        raise UserError("what answers there is no fedsim server: check the address and the port")
    if (version, said.get("format")) != (__version__, FORMAT):
        raise UserError(
            f"the server runs fedsim {printable(version[:40])} (format {quoted(said.get('format'))}), "
            f"this is fedsim {__version__} (format {FORMAT}): install the same version on both sides"
        )
    values: dict[str, Any] = {name: said.get(name) for name in hints_of(Greeting)}
    is_whole = all(fits(values[name], hint) for name, hint in hints_of(Greeting).items())
    if not is_whole or any(not _is_short_line(word) for part in values["data"].items() for word in part):
        raise UserError("the server's greeting is damaged: check that both sides are the same fedsim")
    return Greeting(**values)


def check_data(greeting: Greeting, data: FederatedData) -> None:
    """Check that a process has built the data that the server has."""
    if found := differences(fingerprint(data), greeting.data):
        raise UserError(
            f"the data here are not those of the server: {'; '.join(found)}. Both sides build them from the "
            "server's scenario, so files or versions differ: give the folder of the server's files (data, "
            "or FEDSIM_DATA), and install the same versions of numpy, scikit-learn and torchvision on both "
            "sides"
        )


def _is_short_line(word: str) -> bool:
    return len(word) <= _MOST_PART and word.isprintable()
