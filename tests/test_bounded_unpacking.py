"""A small file that stands for a large one takes no more memory than the bound, and is refused."""

import gzip
import io
import lzma
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import bounded_unpacking
from fedsim.data import file_readers
from fedsim.data.base import LoadContext
from fedsim.data.file_readers import read_array
from fedsim.data.mnist import Mnist
from fedsim.data.texts import Texts, TextsConfig
from fedsim.errors import DataError
from fedsim.network import link_traces
from fedsim.network.link_traces import read_npz
from fedsim.rng import Key

BOUND = 2**20
BOMB_BYTES = 16 * BOUND


def npy(shape: tuple[int, ...], content: bytes, descr: str = "|u1", version: int = 1) -> bytes:
    """Return a .npy file whose header says what one likes."""
    file = io.BytesIO()
    header: dict[str, Any] = {"descr": descr, "fortran_order": False, "shape": shape}
    write = np.lib.format.write_array_header_1_0 if version == 1 else np.lib.format.write_array_header_2_0
    write(file, header)
    return file.getvalue() + content


def npz(path: Path, contents: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in contents.items():
            archive.writestr(f"{name}.npy", content)
    return path


def lying(path: Path, said: int) -> Path:
    """Let the directory of an archive say that its one member is so long."""
    content = path.read_bytes()
    place = content.rindex(b"PK\x01\x02") + 24
    path.write_bytes(content[:place] + struct.pack("<I", said) + content[place + 4 :])
    return path


def peak_bytes(read: Callable[[], object], message: str) -> int:
    """Return the memory that it takes to refuse a file."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bounded_unpacking, link_traces):
        monkeypatch.setattr(module, "MAX_BYTES", BOUND)
    monkeypatch.setattr(file_readers, "MAX_TEXT_BYTES", BOUND)


ZEROS = bytes(BOMB_BYTES)
LONG_HEADER = b"\x93NUMPY\x02\x00" + struct.pack("<I", BOMB_BYTES) + ZEROS
IDX = b"\0\0\x08\x01" + struct.pack(">I", BOMB_BYTES) + ZEROS
SHORT_IDX = b"\0\0\x08\x01\0\0\0\x09"


def xz(content: bytes) -> bytes:
    return lzma.compress(content, preset=0)


CLAIMED = f"its header asks for {BOMB_BYTES} bytes"
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "an honest xz": ("a.npy.xz", lambda: xz(npy((BOMB_BYTES,), ZEROS)), "at most 1048576"),
    "an xz that goes on": ("a.npy.xz", lambda: xz(npy((9,), ZEROS)), "there are more"),
    "an xz of a header": ("a.npy.xz", lambda: xz(LONG_HEADER), "plain array"),
    "an xz that claims": ("a.npy.xz", lambda: lzma.compress(npy((BOUND,), b"1")), "and there are 1"),
    "an honest idx": ("a-ubyte.gz", lambda: gzip.compress(IDX), "at most 1048576"),
    "an idx that goes on": ("a-ubyte.gz", lambda: gzip.compress(SHORT_IDX + ZEROS), "there are more"),
    "a plain one that claims": ("a.npy", lambda: npy((BOMB_BYTES,), b"1"), CLAIMED),
    "a plain idx that claims": ("a-ubyte", lambda: IDX[:80], CLAIMED),
}


@pytest.mark.parametrize(("name", "content", "message"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_of_an_array(tmp_path: Path, name: str, content: Callable[[], bytes], message: str) -> None:
    written = (tmp_path / name).write_bytes(content())
    # xz itself needs its dictionary, of 8 MiB at most here.
    own = 9 * 2**20 if name.endswith("xz") else 0
    peak = peak_bytes(lambda: read_array(tmp_path / name, "", ""), message)
    assert peak < 3 * BOUND + 2**20 + own + written


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("{'descr': ("), "its header cannot be read"),
        (header("(" * 5000), "its header cannot be read"),
        (header("if 1:\n        a\n   b\n"), "its header cannot be read"),
        *(
            (header(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (60000000,)}}\n"), "of no bytes")
            for kind in ("<U0", "|S0", "|V0")
        ),
    ],
)
def test_a_header_that_says_nothing_or_too_much(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    assert peak_bytes(lambda: read_array(tmp_path / "a.npy", "", ""), message) < 2 * 2**20


MEMBERS: dict[str, tuple[bytes, int | None, str]] = {
    "honest": (npy((BOMB_BYTES,), ZEROS), None, f"x unpacks to {BOMB_BYTES + 128} bytes, and may to 1048576"),
    "its header claims": (npy((BOMB_BYTES,), b"1"), None, "at most 1048576"),
    "it goes on": (npy((9,), ZEROS), None, f"x unpacks to {BOMB_BYTES + 128} bytes"),
    "the directory says less": (npy((9,), ZEROS), 200, "there are more|CRC"),
    "both say less": (npy((BOMB_BYTES,), ZEROS), 200, "at most 1048576|CRC"),
    "a long header": (LONG_HEADER, 200, "plain array"),
}


@pytest.mark.parametrize(("content", "said", "message"), MEMBERS.values(), ids=MEMBERS)
def test_a_bomb_in_an_archive(tmp_path: Path, content: bytes, said: int | None, message: str) -> None:
    path = npz(tmp_path / "a.npz", {"x": content})
    if said is not None:
        lying(path, said)
    assert peak_bytes(lambda: read_array(path, "x", "key"), message) < 3 * BOUND


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_packing_that_cannot_be_bounded(tmp_path: Path, kind: int) -> None:
    path = npz(tmp_path / "a.npz", {"x": npy((9,), bytes(9))}, kind)
    with pytest.raises(DataError, match=r"x is not packed as numpy\.savez does it"):
        read_array(path, "x", "key")


def test_a_bomb_among_traces(tmp_path: Path) -> None:
    num = BOMB_BYTES // 8
    ones = np.ones(num).tobytes()
    rest = {"name": npy((1,), b"a\0\0\0", "<U1"), "offset": npy((2,), struct.pack("<qq", 0, num), "<i8")}
    path = npz(tmp_path / "a.npz", rest | {"duration_ms": npy((num,), ones, "<f8"), "kbps": npy((1,), b"\1")})
    assert peak_bytes(lambda: read_npz(path), f"duration_ms unpacks to {BOMB_BYTES + 128} bytes") < 3 * BOUND


def test_a_bomb_of_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"user,label,text\n" + ZEROS))
    load = Texts(TextsConfig(file="t.csv.gz")).load
    peak = peak_bytes(
        lambda: load(LoadContext(tmp_path, 1, Key.root(0))), "unpacks to more than 1048576 bytes: keep it"
    )
    assert peak < 5 * BOUND


def test_a_bomb_of_an_official_set(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for what in ("images-idx3", "labels-idx1"):
            (raw / f"{part}-{what}-ubyte.gz").write_bytes(gzip.compress(IDX))
    load = Mnist(Mnist.Config()).load
    peak = peak_bytes(lambda: load(LoadContext(tmp_path, 1, Key.root(0))), "at most 1048576: fetch it again")
    assert peak < 5 * BOUND


def test_what_is_stored_plainly_may_be_larger(tmp_path: Path) -> None:
    values = np.arange(BOUND, dtype=np.int32)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", x=values)
    for name in ("a.npy", "a.npz"):
        np.testing.assert_array_equal(read_array(tmp_path / name, "x", "key"), values)


def test_an_xz_file_of_several_streams(tmp_path: Path) -> None:
    content = npy((6,), b"abcdef")
    whole = lzma.compress(content[:-3]) + bytes(8) + lzma.compress(content[-3:]) + bytes(4)
    (tmp_path / "a.npy.xz").write_bytes(whole)
    assert bytes(read_array(tmp_path / "a.npy.xz", "", "")) == b"abcdef"
    (tmp_path / "a.npy.xz").write_bytes(whole[:-30])
    with pytest.raises(DataError, match="cannot be read as a plain array"):
        read_array(tmp_path / "a.npy.xz", "", "")


def test_an_xz_decoder_that_wants_much_memory(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    content = bytearray(lzma.compress(npy((1,), b"a"), filters=filters))
    content[content.index(b"\x21\x01") + 2] = 40  # 4 GiB
    header = bytes(content[12 : 12 + (content[12] + 1) * 4 - 4])
    content[12 + len(header) : 12 + len(header) + 4] = struct.pack("<I", zlib.crc32(header))
    (tmp_path / "a.npy.xz").write_bytes(content)
    with pytest.raises(DataError, match="Memory usage limit"):
        read_array(tmp_path / "a.npy.xz", "", "")


@given(
    st.sampled_from(["<f4", ">i8", "|b1", "<U3", "|u1", "<f8"]),
    st.lists(st.integers(0, 4), max_size=4),
    st.booleans(),
    st.sampled_from([".npy", ".npy.xz", ".npz"]),
)
def test_arrays_come_back_as_numpy_reads_them(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], is_fortran: bool, ending: str
) -> None:
    path = tmp_path_factory.mktemp("packed") / f"a{ending}"
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    values = np.asfortranarray(values) if is_fortran else values
    if ending == ".npz":
        np.savez_compressed(path, x=values)
    else:
        with lzma.open(path, "wb") if ending.endswith("xz") else path.open("wb") as file:
            np.lib.format.write_array(file, values)
    read = read_array(path, "x", "key")
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values)
