"""Rewrite the golden frames in ``tests/wire/golden``, a file of hexadecimal lines for each kind of message.

Run it after a deliberate change of the format, and raise ``VERSION`` in ``fedsim/wire/declare.py``::

    python tools/regold_frames.py
"""

from pathlib import Path

import numpy as np

from fedsim.params import Array, Model
from fedsim.rng import Key
from fedsim.wire import (
    SERVER,
    LogitsDown,
    LogitsUp,
    Message,
    ModelBroadcast,
    ModelUpdate,
    PublicBatch,
    PublicData,
    indices_digest,
    pack,
)
from fedsim.wire.codecs.choices import CodecConfig
from fedsim.wire.coded_messages import MessageCodec

FOLDER = Path(__file__).parent.parent / "tests" / "wire" / "golden"


def examples() -> list[Message]:
    """Return one small message of every common kind."""
    weights = {
        "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fc.bias": np.array([-1, np.nan], np.float32),
    }
    buffers = {
        "norm.running_mean": np.array([0.5], np.float64),
        "norm.num_batches_tracked": np.array(7, np.int64),
    }
    indices = np.array([3, 1, 2], np.int64)
    logits = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    return [
        ModelBroadcast.of(Model("mlp", weights, buffers)),
        ModelUpdate.of(Model("mlp", weights, {}), 600),
        PublicBatch(indices),
        PublicData(indices, np.array([[0, 255], [17, 1], [2, 3]], np.uint8)),
        LogitsUp(logits, "logits", 1.0, indices_digest(indices), indices),
        LogitsDown(np.full((3, 2), 0.5, np.float32), "probs", 2.5, indices_digest(indices)),
        *_coded(indices),
    ]


def _coded(indices: Array) -> list[Message]:
    """Return coded messages, by chains that use most codecs."""
    chains = {
        "models": [{"name": "topk", "params": {"share": 0.2}}, "int8"],
        "logits": [{"name": "top_classes", "params": {"classes": 1}}, "int4"],
    }
    ways = {held: {"chain": chain, "least": "8 B"} for held, chain in chains.items()}
    codec = MessageCodec(CodecConfig.model_validate({"up": ways}), "up")
    values = np.arange(24, dtype=np.float32).reshape(4, 6) - 12
    weights = {"fc.weight": values, "fc.bias": np.array([0.5], np.float32)}
    sent = (
        ModelUpdate.of(Model("mlp", weights, {}), 600),
        LogitsUp(values[:3], "logits", 1.0, indices_digest(indices), indices),
    )
    return [codec.encode(one, Key.root(0)).message for one in sent]


def frame_of(message: Message) -> bytes:
    """Return an example's golden frame: client 5 to the server, or the server to client 5, in round 12."""
    upwards = message.KIND.startswith(("update", "logits_up"))
    sender, receiver = (5, SERVER) if upwards else (SERVER, 5)
    return pack(message).frame(sender=sender, receiver=receiver, round=12, exchange="train").join()


def main() -> None:
    """Write every golden frame."""
    FOLDER.mkdir(exist_ok=True)
    for message in examples():
        digits = frame_of(message).hex()
        lines = [digits[start : start + 64] for start in range(0, len(digits), 64)]
        (FOLDER / f"{message.KIND}.hex").write_text("\n".join(lines) + "\n")
        print(f"{message.KIND}.hex: {len(digits) // 2} bytes")


if __name__ == "__main__":
    main()
