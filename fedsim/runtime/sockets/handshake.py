"""Greetings of servers: versions, the scenario of both sides, and a fingerprint of the data.

The data of a scenario depend on files and versions of libraries too, which nothing else would notice.
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
from fedsim.runtime.state_encoding import fits, hints_of

FORMAT = 3
"""Version of greetings and of the data that processes exchange beside frames."""

MAX_BYTES = 1 << 20
"""Longest greeting."""
_MAX_PART = 300
"""Longest part of a fingerprint, in characters."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """A server's greeting; ``scenario`` is in TOML, ``data`` the fingerprint of the server's data.

    ``emulates`` says whether clients are held to their devices.
    """

    scenario: str
    algorithm: str
    data: Mapping[str, str] = field(default_factory=dict)
    verify: bool = False
    emulates: bool = False
    fedsim: str = __version__
    format: int = FORMAT

    def encode(self) -> bytes:
        """Return the greeting as bytes."""
        return json.dumps(asdict(self)).encode()


def read(data: bytes) -> Greeting:
    """Return a greeting; a UserError if it is none, or of another version."""
    try:
        values: Any = json.loads(data) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        values = None
    version = values.get("fedsim") if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(version, str):
        raise UserError("what answers there is no fedsim server: check the address and the port")
    if (version, values.get("format")) != (__version__, FORMAT):
        raise UserError(
            f"the server runs fedsim {printable(version[:40])} (format {quoted(values.get('format'))}), "
            f"this is fedsim {__version__} (format {FORMAT}): install the same version on both sides"
        )
    fields: dict[str, Any] = {name: values.get(name) for name in hints_of(Greeting)}
    is_whole = all(fits(fields[name], hint) for name, hint in hints_of(Greeting).items())
    if not is_whole or any(not _is_short_line(word) for part in fields["data"].items() for word in part):
        raise UserError("the server's greeting is damaged: check that both sides are the same fedsim")
    return Greeting(**fields)


def check_data(greeting: Greeting, data: FederatedData) -> None:
    """Check that a process has built the data of the server; a UserError names what differs."""
    if problems := differences(fingerprint(data), greeting.data):
        raise UserError(
            f"the data here are not those of the server: {'; '.join(problems)}. Both sides build them from "
            "the server's scenario, so files or versions differ: give the folder of the server's files "
            "(data, or FEDSIM_DATA), and install the same versions of numpy, scikit-learn and torchvision "
            "on both sides"
        )


def _is_short_line(word: str) -> bool:
    return len(word) <= _MAX_PART and word.isprintable()
