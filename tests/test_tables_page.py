"""The page of the tables is that of their descriptions."""

import tables_page


def test_the_page_is_written_anew_when_a_column_changes() -> None:
    assert tables_page.PAGE.read_text("utf-8") == tables_page.page(), "run: python tools/tables_page.py"


def test_every_description_is_a_sentence_on_its_own() -> None:
    for tables in tables_page.SECTIONS.values():
        for table in tables:
            for name, column in table.columns.items():
                words = column.description
                assert words.endswith("."), (table.name, name)
                assert not {"\n", "|"} & set(words), (table.name, name)
                assert words[0].isupper() or words[0] == "<", (table.name, name)
                assert "<" not in words or "<" in name, (table.name, name)
