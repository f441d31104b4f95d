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


def test_a_table_falls_into_parts_that_are_narrower_than_a_width() -> None:
    grid = TextTable(
        ("name", "word", "long\nheading", "n"),
        [("a", "x", "1", "2")],
        ["a note"],
        text_columns=frozenset({0, 1}),
        title="Title",
    )
    (whole,) = grid.parts(23)
    assert whole.lines() == grid.lines()
    assert len(grid.lines()[1]) == 22
    first, second, third = grid.parts(13)
    assert first.lines() == ["name  word", "----  ----", "a     x"]
    assert second.lines() == [
        "         long",
        "name  heading",
        "----  -------",
        "a           1",
    ]  # as wide as that
    assert third.lines() == ["name  n", "----  -", "a     2"]
    assert not first.notes
    assert not first.title
