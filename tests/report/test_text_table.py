from fedsim.report.text_table import TextTable


def test_plain_lines_are_aligned() -> None:
    grid = TextTable(("name", "bytes\nup", "n"), [("a", "1 MB", "10"), ("long", "20.5 MB", "3")])
    assert grid.lines() == [
        "        bytes",
        "name       up   n",
        "----  -------  --",
        "a        1 MB  10",
        "long  20.5 MB   3",
    ]


def test_words_are_aligned_left() -> None:
    assert TextTable(("a", "b"), [("x", "y"), ("xx", "yyy")], text_columns=frozenset({0, 1})).lines() == [
        "a   b",
        "--  ---",
        "x   y",
        "xx  yyy",
    ]
