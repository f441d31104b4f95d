from fedsim.report.text_table import TextTable, to_html, to_latex, to_markdown


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


TABLE = TextTable(
    ["variant", "time\nleft"],
    [["a_b|c", "1 ± 2*"], ["50 %", "-"]],
    ["* best", "±: half"],
    title="to reach 5 %",
)


def test_markdown() -> None:
    assert to_markdown(TABLE) == (
        "### to reach 5 %\n"
        "\n"
        "| variant | time left |\n"
        "| --- | ---: |\n"
        "| a_b\\|c | 1 ± 2* |\n"
        "| 50 % | - |\n"
        "\n"
        "- \\* best\n"
        "- ±: half\n"
    )


def test_latex() -> None:
    assert to_latex(TABLE) == (
        "% * best\n"
        "% ±: half\n"
        "\\begin{table}\n"
        "\\centering\n"
        "\\caption{to reach 5 \\%}\n"
        "\\begin{tabular}{lr}\n"
        "\\toprule\n"
        "variant & time left \\\\\n"
        "\\midrule\n"
        "a\\_b|c & 1 $\\pm$ 2* \\\\\n"
        "50 \\% & - \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


def test_html() -> None:
    left, right = ' style="text-align: left"', ' style="text-align: right"'
    assert to_html(TABLE) == (
        f"<table><caption{left}>to reach 5 %</caption>"
        f"<thead><tr><th{left}>variant</th><th{right}>time<br>left</th></tr></thead><tbody>"
        f"<tr><td{left}>a_b|c</td><td{right}>1 ± 2*</td></tr>"
        f"<tr><td{left}>50 %</td><td{right}>-</td></tr></tbody></table>"
        "<p><small>* best<br>±: half</small></p>"
    )


def test_html_of_a_table_without_headings_title_or_notes() -> None:
    left = ' style="text-align: left"'
    assert to_html(TextTable([""], [["1"]])) == f"<table><tbody><tr><td{left}>1</td></tr></tbody></table>"


def test_what_html_reads_as_its_own_is_escaped() -> None:
    text = to_html(TextTable(["<a>"], [["<b>"]], ["<c>"], title="<d> & co"))
    assert all(f"&lt;{name}&gt;" in text for name in "abcd")
    assert "<d>" not in text
    assert " &amp; co" in text


def test_what_latex_reads_as_its_own_is_written_otherwise() -> None:
    (row,) = [line for line in to_latex(TextTable(["x"], [["\\~^&$#{}"]])).splitlines() if "&" in line]
    assert row == r"\textbackslash{}\textasciitilde{}\textasciicircum{}\&\$\#\{\} \\"


def test_a_table_of_cells_alone() -> None:
    assert to_markdown(TextTable(["x"], [["1"]])) == "| x |\n| --- |\n| 1 |\n"
    assert "caption" not in to_latex(TextTable(["x"], [["1"]]))
