from pathlib import Path

import pytest

from fedsim.csv_rows import Row, read_text, rows_of
from fedsim.errors import DataError


def test_lines_are_cut_at_commas_and_numbered_as_in_the_file() -> None:
    text = '# head\n\na, b ,c\r\n  # indented\n"x, y",2,\n'
    assert rows_of(text, "f.csv") == [Row("f.csv", 3, ("a", "b", "c")), Row("f.csv", 5, ("x, y", "2", ""))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.csv: it is empty"),
        ("# nothing\n\n", "f.csv: it is empty"),
        ('a,b\n"open,1\n', "f.csv, line 2: unexpected end of data"),
    ],
)
def test_a_text_without_rows_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_of(text, "f.csv")


def test_numbers() -> None:
    row = Row("f.csv", 7, ("1.5e3", "0", "-2", "nan", "", "1_0x"))
    assert row.number(0, "a") == 1500
    assert row.number(1, "a") == 0
    for place, positive, problem in (
        (1, True, "'0' is zero: write a number above zero"),
        (2, False, "'-2' is negative: write a number zero or more"),
        (3, False, "'nan' is not finite"),
        (4, False, "the cell is empty: write a plain number"),
        (5, False, "'1_0x' is not a number: write a plain number, the unit is in the column's name"),
    ):
        with pytest.raises(DataError, match=f"^f.csv, line 7, column 'a': {problem}"):
            row.number(place, "a", positive=positive)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_bytes("\ufeffµ\n".encode())
    monkeypatch.chdir(tmp_path)
    assert read_text("a.csv") == "µ\n"
    (tmp_path / "a.csv").write_bytes(b"a\xff")
    with pytest.raises(DataError, match=r"a.csv: it is not text in UTF-8 \(byte 1\)"):
        read_text("a.csv")
    with pytest.raises(DataError, match=r"b\.csv: it cannot be read: No such file"):
        read_text("b.csv")
    with pytest.raises(DataError, match=r"it cannot be read: Is a directory$"):
        read_text(str(tmp_path))
