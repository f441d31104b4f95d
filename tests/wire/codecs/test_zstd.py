"""Zstandard: without loss, and bounded."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedsim.errors import DecodeError
from fedsim.params import Tree
from fedsim.rng import Key
from fedsim.wire.codecs.choices import CodecConfig
from tests.wire.codecs.conftest import Make, drawn

zstandard = pytest.importorskip("zstandard")


def test_nothing_is_lost(make: Make) -> None:
    tree = {"w": drawn(30, 20), "s": np.array(2, np.float32)}
    chain = make("zstd")
    decoded = chain.decode(chain.encode(tree, Key.root(0)).tree).tree
    assert all(decoded[name].tobytes() == tree[name].tobytes() for name in tree)


def test_zeros_are_short(make: Make) -> None:
    coded = make("zstd").encode({"w": np.zeros(10_000, np.float32)}, Key.root(0)).tree
    assert coded["+0"].nbytes < 100


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        zstandard.ZstdCompressor().compress(b"\0" * 10**7),
        zstandard.ZstdCompressor().compress(b""),
    ],
)
def test_bombs_and_nonsense_are_refused(make: Make, data: bytes) -> None:
    coded: Tree = {"w": np.empty((0, 10), np.float32), "+0": np.frombuffer(data, np.uint8)}
    with pytest.raises(DecodeError):
        make("zstd").decode(coded)


def test_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsim.wire.codecs.choices.is_installed", lambda package: False)
    config = CodecConfig.model_validate({"up": {"models": {"chain": ["int8", "zstd"]}}})
    (fault,) = config.faults()
    assert (fault.path, fault.problem) == ("codec.up.models.chain.1", "'zstd' needs the package zstandard")
    assert re.search(r"pip install .*\[zstd\]", fault.mend)
    assert not [*config.at_longest().faults()]
