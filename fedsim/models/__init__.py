"""Architectures: one file each, their initialisation and their operation counts."""

from fedsim.models.architecture import Architecture
from fedsim.models.base import ModelPlugin, Net
from fedsim.models.mixture import mixed
from fedsim.models.parts import Architectures, composed, with_part

__all__ = ["Architecture", "Architectures", "ModelPlugin", "Net", "composed", "mixed", "with_part"]
