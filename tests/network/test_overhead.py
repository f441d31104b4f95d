from typing import Literal

import pytest
from pydantic import ValidationError

from fedsim.network.overhead import OverheadConfig

Direction = Literal["up", "down"]


@pytest.mark.parametrize(
    ("payload", "direction", "wire"),
    [
        (0, "down", 2 + 52),
        (125, "down", 125 + 2 + 52),
        (126, "down", 126 + 4 + 52),
        (126, "up", 126 + 8 + 52),
        (1444, "down", 1448 + 52),  # header and payload just fill a segment
        (1445, "down", 1449 + 2 * 52),
        (65_535, "down", 65_539 + 46 * 52),
        (65_536, "down", 65_546 + 46 * 52),
        (1_000_000, "up", 1_000_014 + 691 * 52),
    ],
)
def test_websocket_over_tcp(payload: int, direction: Direction, wire: int) -> None:
    assert OverheadConfig().wire_bytes(payload, direction) == wire


@pytest.mark.parametrize(
    ("payload", "direction", "wire"),
    [
        (0, "up", 261 + 52),
        (0, "down", 157 + 52),
        (1187, "up", 1448 + 52),
        (1188, "up", 1449 + 2 * 52),
        (10_000_000, "down", 10_000_157 + 6907 * 52),
    ],
)
def test_http_over_tcp(payload: int, direction: Direction, wire: int) -> None:
    assert OverheadConfig(protocol="http").wire_bytes(payload, direction) == wire


@pytest.mark.parametrize(
    ("payload", "wire"),
    [
        (0, 2 + 22 + 52),
        (16_380, 16_384 + 22 + 12 * 52),  # one full record
        (16_381, 16_385 + 2 * 22 + 12 * 52),
        (1_000_000, 1_000_010 + 62 * 22 + 692 * 52),
    ],
)
def test_websocket_over_tls(payload: int, wire: int) -> None:
    assert OverheadConfig(tls=True).wire_bytes(payload, "down") == wire


def test_http_over_tls() -> None:
    # 1261 bytes in one record of 1283, in one segment.
    assert OverheadConfig(protocol="http", tls=True).wire_bytes(1000, "up") == 1261 + 22 + 52


@pytest.mark.parametrize(
    ("payload", "direction", "stream"),
    [
        (184, "down", 4 + 36 + 184),
        (100, "up", 8 + 45 + 100),
        (262_143, "up", 14 + 45 + 262_143),
        (262_144, "up", 14 + 45 + 262_144 + 6),  # another message
        (1_000_000, "down", 10 + 36 + 1_000_000 + 3 * 2),
    ],
)
def test_fedsims_own_bus(payload: int, direction: Direction, stream: int) -> None:
    overhead = OverheadConfig(protocol="bus")
    assert overhead.stream_bytes(payload, direction) == stream
    assert overhead.wire_bytes(payload, direction) == stream + 52 * -(-stream // 1448)


def test_none_adds_nothing() -> None:
    assert OverheadConfig(protocol="none").wire_bytes(12_345, "up") == 12_345


def test_none_cannot_be_encrypted() -> None:
    with pytest.raises(ValidationError, match="tls = true needs a protocol"):
        OverheadConfig(protocol="none", tls=True)
