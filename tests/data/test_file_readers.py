"""Arrays and texts from files; most of it is shown through the data sets that read them."""

import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pytest

from fedsim.data.base import blamed, room
from fedsim.data.file_readers import read_array
from fedsim.errors import DataError

IDX = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255])


@pytest.mark.parametrize("ending", ["-ubyte", "-ubyte.gz"])
def test_idx_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"images-idx2{ending}"
    path.write_bytes(gzip.compress(IDX) if ending.endswith("gz") else IDX)
    array = read_array(path, "", "")
    assert array.dtype == np.uint8
    assert array.tolist() == [[1, 2, 3], [4, 5, 255]]


@pytest.mark.parametrize("content", [b"", IDX[:3], IDX[:9], IDX[:-1], b"\0\0\x0d" + IDX[3:], b"text"])
def test_damaged_idx_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a-ubyte").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as a plain array"):
        read_array(tmp_path / "a-ubyte", "", "")


@pytest.mark.parametrize("ending", [".npy", ".npy.xz"])
@pytest.mark.parametrize("num", [10**15, 10**20])
def test_a_header_of_more_than_there_can_be_memory_for(tmp_path: Path, ending: str, num: int) -> None:
    header = {"descr": "<f8", "fortran_order": False, "shape": (num,)}
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    content = file.getvalue()
    (tmp_path / f"a{ending}").write_bytes(lzma.compress(content) if ending.endswith("xz") else content)
    with pytest.raises(DataError, match=r"an array for which there is no memory|as a plain array"):
        read_array(tmp_path / f"a{ending}", "", "")


def test_room() -> None:
    array = room((2, 3), np.float32, "size")
    assert array.shape == (2, 3)
    assert array.dtype == np.float32
    for num in (10**15, 2**62):
        with pytest.raises(DataError, match=rf"{num} x 2 numbers, take .*B, .* lower size"):
            room((num, 2), np.float64, "size")


def test_blame_keeps_the_cause(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"nothing")
    with pytest.raises(DataError) as caught, blamed("mine"):
        read_array(tmp_path / "a.npy", "", "")
    assert caught.value.setting == "mine"
    assert isinstance(caught.value.__cause__, ValueError)
