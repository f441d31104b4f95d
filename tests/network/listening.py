"""A listener that notes what happens to its parcel."""

from fedsim.clock import now_ns
from fedsim.network import Parcel


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, Parcel | None]] = []

    def left(self) -> None:
        self.heard.append(("left", now_ns(), None))

    def arrived(self, parcel: Parcel) -> None:
        self.heard.append(("arrived", now_ns(), parcel))

    def lost(self, cause: str) -> None:
        self.heard.append(("lost", now_ns(), None))

    @property
    def events(self) -> list[tuple[str, int]]:
        return [(what, at_ns) for what, at_ns, _ in self.heard]
