"""Frames of the common kinds, byte for byte as in the files that tools/regold_frames.py writes."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from fedsim.wire import COMMON, SERVER, Envelope, Kinds, LogitsUp, ModelUpdate, decode, same
from fedsim.wire.coded_messages import coded_kind

KINDS = Kinds((*COMMON, *map(coded_kind, (ModelUpdate, LogitsUp))))
GOLDEN = Path(__file__).parent / "golden"
TOOL: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "regold_frames.py"))
EXAMPLES = {example.KIND: example for example in TOOL["examples"]()}


def golden(kind: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{kind}.hex").read_text())


def test_every_common_kind_has_a_golden_frame_and_nothing_else_has() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(KINDS) == sorted(EXAMPLES)


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_frame_is_the_golden_one(kind: str) -> None:
    assert TOOL["frame_of"](EXAMPLES[kind]).hex() == golden(kind).hex()


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_golden_frame_is_read(kind: str) -> None:
    envelope, message = decode(golden(kind), KINDS)
    sender, receiver = (5, SERVER) if kind.startswith(("update", "logits_up")) else (SERVER, 5)
    assert envelope == Envelope(kind, sender, receiver, 12, "train")
    assert same(message, EXAMPLES[kind])
