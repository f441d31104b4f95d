import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import toml_writer

values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=5))
def test_what_is_written_reads_back(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml_writer.document(document)) == document


tables: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.text("ab", min_size=1), inner, max_size=3)
)


@given(tables)
def test_tables_beside_each_other_keep_their_order(document: dict[str, Any]) -> None:
    assert repr(tomllib.loads(toml_writer.document(document))) == repr(document)


def test_an_empty_table_keeps_its_place_behind_one_with_a_header() -> None:
    models = {"wide": {"params": {"head": {"width": 8}}}, "linear": {}}
    assert list(tomllib.loads(toml_writer.document({"models": models}))["models"]) == ["wide", "linear"]


def test_the_form_that_people_read() -> None:
    document = {
        "run": {"name": "a", "rounds": 2},
        "models": {"m": {"name": "mlp", "params": {"hidden": [8, 4]}}},
        "fleet": [{"count": 1, "up": {"low": "1 B"}}, {"count": 2}],
    }
    assert toml_writer.document(document) == (
        '[run]\nname = "a"\nrounds = 2\n\n'
        '[models.m]\nname = "mlp"\nparams = { hidden = [8, 4] }\n\n'
        '[[fleet]]\ncount = 1\nup = { low = "1 B" }\n\n[[fleet]]\ncount = 2\n'
    )


def test_keys_in_quotation_marks() -> None:
    assert toml_writer.path("a", 0, "my lab.x") == 'a.0."my lab.x"'


def test_nothing_else() -> None:
    with pytest.raises(TypeError, match="TOML cannot hold a NoneType"):
        toml_writer.value(None)
