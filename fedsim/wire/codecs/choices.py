"""The tables of a scenario that choose codecs, by direction and by what a field holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field

from fedsim.config import AsTuple, Config
from fedsim.errors import Fault
from fedsim.plugin_choice import Kind, NamedChoice, OrName
from fedsim.plugins import install_command, is_installed
from fedsim.units import PositiveBytes
from fedsim.wire.codecs.base import Codec
from fedsim.wire.codecs.chain import Chain

CODEC = Kind("codec", "fedsim.wire.codecs", Codec)  # type: ignore[type-abstract]

Way = Literal["up", "down"]
Held = Literal["models", "logits"]
WAYS: tuple[Way, ...] = ("up", "down")
HELD: tuple[Held, ...] = ("models", "logits")
PLACES = tuple(product(WAYS, HELD))
"""Where there can be codecs."""


class CodecChoice(NamedChoice):
    """A codec."""

    KIND = CODEC
    name: str


class ChainConfig(Config):
    """Codecs, one after the other."""

    chain: Annotated[tuple[OrName[CodecChoice], ...], AsTuple, Field(max_length=8)] = ()
    """Codecs, first to last: names, or tables of name and params."""
    least: PositiveBytes = Field("1 kB", validate_default=True)
    """Arrays that are smaller stay as they are."""
    error_feedback: bool = False
    """Whether a client adds what a codec left out to what it sends next time."""

    @cached_property
    def made(self) -> Chain:
        """The codecs themselves."""
        codecs: list[Codec[Any]] = [choice.make() for choice in self.chain]
        return Chain(codecs, int(self.least), self.error_feedback)

    def at_longest(self) -> ChainConfig:
        """Return the same, each codec whose length depends on values replaced by its longest."""
        names = [codec.longest for codec in self.made.codecs]
        chosen = zip(self.chain, names, strict=True)
        chain = tuple(one.model_copy(update={"name": name}) if name else one for one, name in chosen)
        return ChainConfig.model_construct(**{**dict(self), "chain": chain})


class WayConfig(Config):
    """Codecs of one direction."""

    models: ChainConfig = ChainConfig()
    """Those of models' parameters, and of other trees that count as parameters communicated."""
    logits: ChainConfig = ChainConfig()
    """Those of predictions and features: arrays of float32 that count as parameters communicated."""


class CodecConfig(Config):
    """How messages are coded; not at all if left out."""

    up: WayConfig = WayConfig()
    """Towards the server."""
    down: WayConfig = WayConfig()
    """Towards clients."""

    def of(self, way: Way, held: Held) -> ChainConfig:
        """Return the codecs of a direction and of what a field holds."""
        chosen: ChainConfig = getattr(getattr(self, way), held)
        return chosen

    def is_on(self) -> bool:
        """Whether anything is coded."""
        return any(self.of(way, held).chain for way, held in PLACES)

    @property
    def has_fixed_lengths(self) -> bool:
        """Whether the lengths of all frames follow from shapes."""
        return all(self.of(way, held).made.has_fixed_length for way, held in PLACES)

    def at_longest(self) -> CodecConfig:
        """Return the same, each codec whose length depends on values replaced by its longest."""
        ways = {way: {held: self.of(way, held).at_longest() for held in HELD} for way in WAYS}
        return CodecConfig(**{way: WayConfig(**chains) for way, chains in ways.items()})

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong with the order of codecs, or with where they are."""
        for way, held in PLACES:
            yield from _chain_faults(self.of(way, held), way, held)


NO_CODECS = CodecConfig()
"""Nothing is coded."""


def _chain_faults(config: ChainConfig, way: Way, held: Held) -> Iterator[Fault]:
    path, names = f"codec.{way}.{held}", [choice.name for choice in config.chain]
    codecs = config.made.codecs
    for number, (name, codec) in enumerate(zip(names, codecs, strict=True)):
        package, extra = codec.extra
        is_last, place = number == len(codecs) - 1, f"{path}.chain.{number}"
        of_changes = codec.about.kind == "changes of models"
        other = "logits" if held == "models" else "models"
        if (of_changes and held == "logits") or (codec.about.kind == "predictions" and held == "models"):
            yield Fault(place, f"{name!r} codes {codec.about.kind}", f"write it under codec.{way}.{other}")
        elif package and not is_installed(package):
            yield Fault(place, f"{name!r} needs the package {package}", install_command(extra))
        elif codec.subtracts and way == "down":
            problem = f"{name!r} needs what each client holds, which the server does not know"
            yield Fault(place, problem, "leave it out: towards clients only codecs without a state work")
        elif codec.subtracts and number:
            yield Fault(place, f"{name!r} is behind {names[number - 1]!r}", "write it first")
        elif of_changes and way == "down":
            problem = f"{name!r} codes changes of models, and whole models go down"
            yield Fault(place, problem, "choose float16, bfloat16, int8 or int4")
        elif not is_last and not codec.coded(((4, 4),)).values:
            problem = f"{name!r} leaves no values for {names[number + 1]!r}"
            if not codecs[number + 1].takes_segments:
                yield Fault(f"{path}.chain.{number + 1}", problem, f"write {names[number + 1]!r} before it")
    if config.error_feedback:
        place = f"{path}.error_feedback"
        if (way, held) != ("up", "models"):
            problem = "error feedback is what a client keeps of changes of models that it sends"
            yield Fault(place, problem, "write it under codec.up.models")
        elif not config.chain:
            yield Fault(place, "no codec leaves anything out", f"write {path}.chain, or leave it out")
