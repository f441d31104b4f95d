"""Tables in Markdown, LaTeX and HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from fedsim.report.text_table import TextTable

_IN_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def to_markdown(table: TextTable) -> str:
    """Return a table in Markdown: its title, its cells, and its notes as a list."""
    rules = ["---" if number in table.text_columns else "---:" for number in range(len(table.headings))]
    rows = [[heading.replace("\n", " ") for heading in table.headings], rules, *table.rows]
    lines = [f"### {table.title}", ""] if table.title else []
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    lines += ["", *(f"- {_starless(note)}" for note in table.notes)] if table.notes else []
    return "\n".join(lines) + "\n"


def to_latex(table: TextTable) -> str:
    """Return a table in LaTeX, with the rules of the package booktabs; its title is the caption.

    Notes are comments, for whoever writes the text around it.
    """
    spec = "".join("l" if number in table.text_columns else "r" for number in range(len(table.headings)))
    rows = [" & ".join(_latex(cell.replace("\n", " ")) for cell in row) + r" \\" for row in table.rows]
    heads = " & ".join(_latex(heading.replace("\n", " ")) for heading in table.headings) + r" \\"
    lines = [f"% {note}" for note in table.notes]
    lines += [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{_latex(table.title)}}}"] if table.title else []
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", heads, r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", r"\end{table}"]) + "\n"


def to_html(table: TextTable) -> str:
    """Return a table in HTML, for notebooks: its title is the caption, and its notes are below it."""

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ["left" if number in table.text_columns else "right" for number in range(len(cells))]
        return "".join(
            f'<{tag} style="text-align: {side}">{escape(cell).replace(chr(10), "<br>")}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )

    caption = f'<caption style="text-align: left">{escape(table.title)}</caption>' if table.title else ""
    head = f"<thead><tr>{line('th', table.headings)}</tr></thead>" if any(table.headings) else ""
    body = "".join(f"<tr>{line('td', row)}</tr>" for row in table.rows)
    notes = f"<p><small>{'<br>'.join(map(escape, table.notes))}</small></p>" if table.notes else ""
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>{notes}"


def _latex(text: str) -> str:
    return "".join(_IN_LATEX.get(character, character) for character in text)


def _starless(note: str) -> str:
    """Keep a star at the start of a note from becoming a list of its own."""
    return re.sub(r"^\*", r"\\*", note)
