"""The settings of faults, one table ``[[faults]]`` each."""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationInfo, create_model, field_validator

from fedsim.config import AsTuple, Config, fault
from fedsim.ranges import Share
from fedsim.units import PositiveSeconds, Seconds

FrameFault = Literal["loss", "duplicate", "delay", "corrupt", "partition"]
Attack = Literal["sign_flip", "scale", "noise", "constant", "label_flip"]
Kind = Literal[FrameFault, "crash", "slow", Attack]

OF_FRAMES: frozenset[str] = frozenset(get_args(FrameFault))
"""Faults of frames; the others are of clients."""

FATAL: frozenset[str] = OF_FRAMES - {"duplicate", "delay"}
"""Faults after which a message does not arrive."""

ATTACKS: frozenset[str] = frozenset(get_args(Attack))
"""Faults of clients that send something else than their work, or learn from wrong labels."""

LEAST_STRUCK = 0.001
"""The least probability of a crash or of a slow device, other than 0."""

LEAST_APART_S = 1.0
"""The least time after which devices slow down again, s."""

_NEEDED: dict[str, tuple[frozenset[str], str, str]] = {
    "delay": (frozenset({"delay"}), "how late frames are", '"2 s"'),
    "factor": (frozenset({"slow", "scale"}), "by which factor", "4"),
    "share": (ATTACKS, "how many clients attack", "0.1"),
    "deviation": (frozenset({"noise"}), "how large the noise is", "0.1"),
    "value": (frozenset({"constant"}), "what attackers send", "0"),
}
"""Keys that some kinds need and no other has: the kinds, what the key says, and an example of it."""

Real = Annotated[float, Field(ge=-1e9, le=1e9)]


class BaseFaultConfig(Config):
    """A fault of the network, or of clients."""

    kind: Kind
    """What happens: frames are lost (loss), arrive twice (duplicate), late (delay) or spoilt (corrupt),
    nothing passes for a while (partition), clients crash and lose what they are at (crash), or their devices
    are slow for a while (slow). Or clients attack: they send the opposite of their change (sign_flip), a
    multiple of it (scale), their values with noise (noise) or other values (constant), or they train on wrong
    labels (label_flip)."""
    probability: Annotated[float, Field(ge=0, le=1)] | None = Field(None, validate_default=True)
    """For how many of the frames, or, each time, of the clients that crash or are slow; a partition is for
    all."""
    delay: PositiveSeconds | None = Field(None, validate_default=True)
    """How much later a frame arrives, for a delay."""
    factor: Real | None = Field(None, validate_default=True)
    """How many times as long computing takes, for slow devices; how many times the change is sent, for
    scale."""
    share: Share | None = Field(None, validate_default=True)
    """The share of the clients that attack, drawn once."""
    deviation: Annotated[float, Field(gt=0, le=1e9)] | None = Field(None, validate_default=True)
    """Standard deviation of noise."""
    value: Real | None = Field(None, validate_default=True)
    """What attackers send in place of each value, for constant."""
    keeps_state: bool = Field(True, validate_default=True)
    """Whether clients that crash still hold afterwards what they held before."""
    direction: Literal["both", "up", "down"] = "both"
    """Which frames: those towards the server (up), those towards clients (down), or both."""
    groups: Annotated[tuple[str, ...], AsTuple] = ()
    """Of which clients: those of these groups or labels; all if left out."""
    at: Seconds = Field("0 s", validate_default=True)
    """When it begins."""
    every: PositiveSeconds | None = None
    """After how long it begins again; once if left out."""

    @field_validator("probability", mode="after")
    @classmethod
    def _suits(cls, probability: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("kind")
        if kind in ("crash", "slow") and probability is not None and 0 < probability < LEAST_STRUCK:
            raise fault(
                f"{probability:g} is rare, and clients that are struck are looked for one by one",
                f"write {LEAST_STRUCK} or more",
            )
        if kind == "partition" and probability is not None:
            raise fault(
                "a partition is for all frames of its clients", "leave probability out, or write 'loss'"
            )
        if kind in ATTACKS and probability is not None:
            raise fault("a client attacks always or never", "leave probability out, and write share")
        if kind in OF_FRAMES - {"partition"} and probability is None:
            raise fault(f"it does not say how many frames {kind!r} is for", "add probability = 0.05, say")
        return probability

    @field_validator(*_NEEDED, mode="after")
    @classmethod
    def _is_needed(cls, value: float | None, info: ValidationInfo) -> float | None:
        kind, name = info.data.get("kind"), info.field_name or ""
        kinds, says, example = _NEEDED[name]
        if kind in kinds and value is None:
            raise fault(f"{kind!r} does not say {says}", f"add {name} = {example}, say")
        if kind is not None and kind not in kinds and value is not None:
            raise fault(f"{kind!r} has no {name}", "leave it out")
        if kind == "slow" and value is not None and not 1 < value <= 1000:
            raise fault(f"{value:g} is no factor by which devices are slow", "write more than 1, to 1000")
        return value

    @field_validator("keeps_state", mode="after")
    @classmethod
    def _may_be_lost(cls, keeps_state: bool, info: ValidationInfo) -> bool:
        kind = info.data.get("kind")
        if kind not in ("crash", None) and not keeps_state:
            raise fault(f"{kind!r} leaves clients' states alone", "leave it out, or write kind = 'crash'")
        return keeps_state

    @field_validator("direction", mode="after")
    @classmethod
    def _is_of_frames(cls, direction: str, info: ValidationInfo) -> str:
        kind = info.data.get("kind")
        if kind not in (*OF_FRAMES, None) and direction != "both":
            raise fault(f"{kind!r} is of clients, and not of frames in one direction", "leave it out")
        return direction

    @field_validator("at", "every", mode="after")
    @classmethod
    def _may_begin(cls, time_s: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("kind")
        if kind in ATTACKS and time_s:
            raise fault("attackers attack in all rounds", "leave it out")
        if kind == "slow" and info.field_name == "every" and time_s is not None and time_s < LEAST_APART_S:
            raise fault(
                "that is too often, since each begin is looked at", f"write {LEAST_APART_S:g} s or more"
            )
        return time_s

    @property
    def lasts_s(self) -> float:
        """How long it lasts, s; infinite if it does not end."""
        lasts_s: float | None = getattr(self, "for")
        return inf if lasts_s is None else lasts_s

    def concerns(self, up: bool) -> bool:
        """Whether it is for frames of a direction."""
        return self.direction == "both" or (self.direction == "up") == up


def _has_an_end(lasts_s: float | None, info: ValidationInfo) -> float | None:
    kind, every_s = info.data.get("kind"), info.data.get("every")
    if kind == "crash" or kind in ATTACKS:
        if lasts_s is not None:
            why = "a crash is over at once" if kind == "crash" else "attackers attack in all rounds"
            raise fault(why, "leave it out")
        return None
    if every_s is not None and (lasts_s is None or lasts_s >= every_s):
        raise fault("it lasts until it begins again", "write a time that is shorter than every")
    return lasts_s


_LASTS: Any = (
    PositiveSeconds | None,
    Field(None, description="How long it lasts; to the end if left out.", validate_default=True),
)
FaultConfig: type[BaseFaultConfig] = create_model(
    "FaultConfig",
    __base__=BaseFaultConfig,
    __module__=__name__,
    __validators__={"has_an_end": field_validator("for", mode="after")(_has_an_end)},
    **{"for": _LASTS},
)
"""The settings of a fault; made so, since one of the keys is a keyword of Python."""


class RetryConfig(Config):
    """How a frame is sent again that a fault has kept from arriving; in each direction by itself."""

    times: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often, at most."""
    after: PositiveSeconds
    """How long after it has left its sender, or was cut off before that."""
