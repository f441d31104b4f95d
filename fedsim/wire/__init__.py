"""Frames: messages to bytes and back. See :mod:`fedsim.wire.frame` for what the bytes are."""

from fedsim.wire.common_messages import (
    COMMON,
    Form,
    LogitsDown,
    LogitsUp,
    ModelBroadcast,
    ModelUpdate,
    PublicBatch,
    PublicData,
    indices_digest,
)
from fedsim.wire.contents import DEFAULT, Limits
from fedsim.wire.declare import Kinds, Message, counted, message, num_parameters
from fedsim.wire.decode import Envelope, decode
from fedsim.wire.frame import SERVER, Frame, FrameSize, Packed, SizedMessage, SizedPacked, pack, same

__all__ = [
    "COMMON",
    "DEFAULT",
    "SERVER",
    "Envelope",
    "Form",
    "Frame",
    "FrameSize",
    "Kinds",
    "Limits",
    "LogitsDown",
    "LogitsUp",
    "Message",
    "ModelBroadcast",
    "ModelUpdate",
    "Packed",
    "PublicBatch",
    "PublicData",
    "SizedMessage",
    "SizedPacked",
    "counted",
    "decode",
    "indices_digest",
    "message",
    "num_parameters",
    "pack",
    "same",
]
