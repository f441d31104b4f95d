"""Architectures: one file each, their initialisation and their operation counts."""

from fedsim.models.architecture import Architecture
from fedsim.models.base import ModelPlugin, Net

__all__ = ["Architecture", "ModelPlugin", "Net"]
