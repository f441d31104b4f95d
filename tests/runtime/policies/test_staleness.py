from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.runtime.policies.staleness import PLUGINS


def law(name: str, **params: float) -> Any:
    plugin: Any = PLUGINS[name]
    return plugin(plugin.Config(**params)).discount


@pytest.mark.parametrize(
    ("name", "params", "staleness", "discounts"),
    [
        ("constant", {}, (0, 0.5, 1e6), [1, 1, 1]),
        ("hinge", {}, (0, 4, 5, 14), [1, 1, 1 / 11, 1 / 101]),
        ("hinge", {"a": 2, "b": 1}, (1, 1.5, 3), [1, 1 / 2, 1 / 5]),
        ("hinge", {"a": 0}, (1e6,), [1]),
        ("polynomial", {}, (0, 3, 8, 0.21), [1, 1 / 2, 1 / 3, 1 / 1.1]),
        ("polynomial", {"a": 2}, (3,), [1 / 16]),
        ("polynomial", {"a": 0}, (1e6,), [1]),
    ],
)
def test_by_hand(
    name: str, params: dict[str, float], staleness: tuple[float, ...], discounts: list[float]
) -> None:
    assert [law(name, **params)(value) for value in staleness] == pytest.approx(discounts)


@given(
    st.sampled_from(["hinge", "polynomial"]),
    st.floats(0, 10),
    st.floats(0, 1e6),
    st.floats(0, 2e6),
    st.floats(0, 2e6),
)
def test_it_never_rises_and_stays_above_0(name: str, a: float, b: float, first: float, other: float) -> None:
    discount = law(name, a=a) if name == "polynomial" else law(name, a=100 * a, b=b)
    fresher, staler = sorted((first, other))
    assert 1 >= discount(fresher) >= discount(staler) > 0


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("hinge", {"a": -1}),
        ("hinge", {"b": -1}),
        ("hinge", {"a": 1e4}),
        ("hinge", {"b": float("nan")}),
        ("polynomial", {"a": -0.1}),
        ("polynomial", {"a": 11}),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, params: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"greater|less|finite"):
        law(name, **params)
