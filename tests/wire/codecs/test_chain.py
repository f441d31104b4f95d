"""Laws of all codecs and of chains of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsim.errors import DecodeError
from fedsim.params import Form, Tree, digest, out_of_range
from fedsim.plugins import available, is_installed
from fedsim.rng import Key
from fedsim.wire.codecs.chain import Chain, plain_form
from fedsim.wire.codecs.choices import ChainConfig
from tests.wire.codecs.conftest import Make, drawn, floats, zeros_like

KEY = Key.root(7)
TOP = {"name": "topk", "params": {"share": 0.3}}
CHAINS: Mapping[str, list[Any]] = {
    "float16": ["float16"],
    "bfloat16": ["bfloat16"],
    "int8": ["int8"],
    "int8 a row": [{"name": "int8", "params": {"rows": True}}],
    "int4": ["int4"],
    "ternary": ["delta", "ternary"],
    "sign": ["delta", "sign"],
    "topk": ["delta", TOP],
    "topk, int8": ["delta", TOP, "int8"],
    "randk": ["delta", {"name": "randk", "params": {"share": 0.3}}],
    "lowrank": ["delta", {"name": "lowrank", "params": {"rank": 1}}],
    "lowrank, int4": ["delta", "lowrank", "int4"],
    "delta": ["delta"],
    "hard_labels": ["hard_labels"],
    "top_classes": ["top_classes"],
    "top_classes, int8": ["top_classes", "int8"],
    "zstd": ["bfloat16", "zstd"],
    "topk, zstd": ["delta", TOP, "int8", "zstd"],
    "nothing": [],
}
LACKS_ZSTD = pytest.mark.skipif(not is_installed("zstandard"), reason="the extra zstd is not installed")
ANY = pytest.mark.parametrize(
    "codecs",
    [
        pytest.param(codecs, marks=[LACKS_ZSTD] if "zstd" in codecs else [], id=name)
        for name, codecs in CHAINS.items()
    ],
)


def made(codecs: list[Any], *, least: str = "1 B", feedback: bool = False) -> Chain:
    return ChainConfig.model_validate({"chain": codecs, "least": least, "error_feedback": feedback}).made


def tree() -> Tree:
    return {
        "w": drawn(20, 30),
        "b": drawn(30, seed=1),
        "wide": drawn(5, 9, seed=2).astype(np.float64),
        "zero": np.zeros((4, 6), np.float32),
        "equal": np.full((3, 3), 0.25, np.float32),
        "one": floats(1.5),
        "scalar": np.array(2.5, np.float32),
        "empty": np.empty((0, 3), np.float32),
        "flat": np.empty((3, 0), np.float32),
        "count": np.array(3, np.int64),
    }


def test_every_codec_is_in_a_chain_here() -> None:
    names = {one if isinstance(one, str) else one["name"] for codecs in CHAINS.values() for one in codecs}
    assert names == {info.name for info in available("fedsim.wire.codecs")}


@ANY
def test_the_form_of_a_coded_tree_follows_from_that_of_the_tree(codecs: list[Any]) -> None:
    chain = made(codecs)
    coded = chain.encode(tree(), KEY, zeros_like(tree())).tree
    chain.check_form(Form.of(coded))
    assert plain_form(Form.of(coded)) is Form.of(tree())
    expected = chain.form(Form.of(tree()))
    if chain.has_fixed_length:
        assert Form.of(coded) is expected
    else:
        assert coded["+0"].nbytes <= expected["+0"].nbytes


@ANY
def test_what_is_decoded_has_the_names_shapes_and_dtypes(codecs: list[Any]) -> None:
    chain, reference = made(codecs), zeros_like(tree())
    decoded = chain.decode(chain.encode(tree(), KEY, reference).tree, reference).tree
    assert Form.of(decoded) is Form.of(tree())
    assert decoded["count"] == 3
    assert all(out_of_range(array) is None for array in decoded.values())
    assert not decoded["zero"].any()
    assert not any(array.flags.writeable for array in decoded.values())


@ANY
def test_both_directions_repeat_to_the_bit(codecs: list[Any]) -> None:
    chain, reference = made(codecs), zeros_like(tree())
    one, two = (chain.encode(tree(), KEY, reference).tree for _ in range(2))
    assert all((one[name].tobytes() == two[name].tobytes()) for name in one)
    back, again = (chain.decode(one, reference).tree for _ in range(2))
    assert all((back[name].tobytes() == again[name].tobytes()) for name in back)


@ANY
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_becomes_an_infinity_and_shows(codecs: list[Any], value: float) -> None:
    chain, values = made(codecs), {"w": drawn(8, 8)}
    values["w"][2, 3] = value
    reference = zeros_like(values)
    decoded = chain.decode(chain.encode(values, KEY, reference).tree, reference).tree["w"]
    assert np.isnan(decoded).any() or (np.isinf(decoded).any() and codecs in ([], ["delta"]))


@ANY
def test_arrays_that_are_small_stay_as_they_are(codecs: list[Any]) -> None:
    chain, reference = made(codecs, least="200 B"), zeros_like(tree())
    decoded = chain.decode(chain.encode(tree(), KEY, reference).tree, reference).tree
    for name in ("b", "equal", "one", "scalar"):
        assert decoded[name].tobytes() == tree()[name].tobytes()


@ANY
def test_a_tree_without_arrays_to_code(codecs: list[Any]) -> None:
    chain, values = made(codecs), {"count": np.array([1, 2], np.int64)}
    coded = chain.encode(values, KEY, values).tree
    chain.check_form(Form.of(coded))
    assert [*chain.decode(coded, values).tree] == ["count"]


BITS = {
    "float16": "77ce29c22f954df3",
    "bfloat16": "98bf6d7293ff24b0",
    "int8": "fa79a3d79d34abb0",
    "int8 a row": "45762218b4c024ed",
    "int4": "d6effe4f1c6bb382",
    "ternary": "707c1421c216fba7",
    "sign": "fbfee05690f39cf4",
    "topk": "60e78c124f956ba3",
    "topk, int8": "0e2c03712b0dc141",
    "randk": "bd5fa78dbb5b6d7b",
    "lowrank": "13cd8ee9b863eccf",
    "lowrank, int4": "89359c3d43212a31",
    "delta": "f1ce91d40386879f",
    "hard_labels": "0d8144fd7a1acdaf",
    "top_classes": "042d23ec2cee06d0",
    "top_classes, int8": "949c7e00490fc63c",
    "nothing": "048b8e93480472da",
}
"""First half of the digest of what was encoded, was left out and is decoded."""


@pytest.mark.parametrize("name", [name for name in CHAINS if "zstd" not in name])
def test_bits_are_the_same_on_every_processor(name: str) -> None:
    chain = made(CHAINS[name], feedback=CHAINS[name][:1] == ["delta"])
    values, reference = (
        {"w": drawn(70, 33), "b": drawn(77, seed=1)},
        {"w": drawn(70, 33, seed=2), "b": drawn(77)},
    )
    encoded = chain.encode(values, KEY, reference, reference if chain.has_feedback else None)
    decoded = chain.decode(encoded.tree, reference)
    assert digest(encoded.tree, encoded.residual, decoded.tree).hex()[:16] == BITS[name]


FEEDBACK = [name for name, codecs in CHAINS.items() if codecs[:1] == ["delta"] and "zstd" not in codecs]


@pytest.mark.parametrize("name", FEEDBACK)
@given(
    values=hnp.arrays(np.float32, (6, 5), elements=st.floats(-100, 100, width=32)), seed=st.integers(0, 99)
)
def test_the_residual_is_what_was_left_out(name: str, values: Any, seed: int) -> None:
    chain = made(CHAINS[name], feedback=True)
    reference, before = {"w": drawn(6, 5, seed=seed)}, {"w": drawn(6, 5, seed=seed + 1)}
    coded = chain.encode({"w": values}, Key.root(seed), reference, before)
    zero = zeros_like(reference)
    sent = (
        chain.decode(coded.tree, zero).tree["w"]
        if len(chain.codecs) > 1
        else values - reference["w"] + before["w"]
    )
    expected = (values - reference["w"]) + before["w"] - sent
    assert coded.residual["w"].tobytes() == (expected + zero["w"]).tobytes() or np.array_equal(
        coded.residual["w"], expected
    )


def test_without_feedback_nothing_is_left() -> None:
    assert not made(["delta", TOP]).encode(tree(), KEY, zeros_like(tree())).residual


def test_a_change_is_not_subtracted_twice(make: Make) -> None:
    chain, change = make("delta"), {"w": floats(1, -2)}
    coded = chain.encode(change, KEY, None)
    assert coded.tree["+0"].tolist() == [1, -2]
    assert chain.decode(coded.tree, None).tree["w"].tolist() == [1, -2]


def test_the_difference_is_what_the_client_has_decoded(make: Make) -> None:
    coded = make("delta").encode({"w": floats(1, 5)}, KEY, {"w": floats(0.5, 7)}).tree
    assert coded["+0"].tolist() == [0.5, -2]


def test_a_draw_has_another_key_than_another_one() -> None:
    chain = made(["int8"])
    one, two = (chain.encode({"w": drawn(400)}, Key.root(seed)).tree["+0"] for seed in range(2))
    assert (one != two).any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"+0": np.zeros(599, np.int8)}, "is int8 of (599,), not int8 of (600,)"),
        ({"+0": np.zeros(600, np.uint8)}, "is uint8 of (600,), not int8 of (600,)"),
        ({"+2": np.zeros(1, np.int8)}, "4 arrays where 3 belong"),
        (
            {"w": np.empty((0, 2**20, 2**20), np.float32)},
            "'+0' is int8 of (600,), not int8 of (1099511627776,)",
        ),
    ],
)
def test_another_form_than_an_encoders_is_refused(change: Tree, says: str) -> None:
    chain = made(["int8"])
    coded = {**chain.encode({"w": drawn(20, 30)}, KEY).tree, **change}
    with pytest.raises(DecodeError, match="a coded tree") as error:
        chain.check_form(Form.of(coded))
    assert says in str(error.value)


def test_a_name_of_a_segment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"are not called '\+0'"):
        made(["int8"]).form(Form.of({"+0": drawn(600)}))


@ANY
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_or_other_values(codecs: list[Any], place: int, bit: int) -> None:
    chain, values = made(codecs), {"w": drawn(12, 10)}
    reference = zeros_like(values)
    coded = {name: np.array(array) for name, array in chain.encode(values, KEY, reference).tree.items()}
    segments = [array for name, array in coded.items() if name.startswith("+")]
    if not segments:
        return
    whole = np.concatenate([segment.view(np.uint8).reshape(-1) for segment in segments])
    whole[place % len(whole)] ^= 1 << bit
    first = 0
    for segment in segments:
        segment.view(np.uint8).reshape(-1)[:] = whole[first : first + segment.nbytes]
        first += segment.nbytes
    try:
        assert Form.of(chain.decode(coded, reference).tree) is Form.of(values)
    except DecodeError as error:
        assert str(error)  # noqa: PT017 - either is right


def test_operations_grow_with_values(make: Make) -> None:
    chain = make("delta", "int8")
    encode, decode = chain.flops(Form.of({"w": drawn(100)}))
    assert (encode, decode) == (1 * 100 + 6 * 100, 1 * 100 + 2 * 100)
    assert make("int8", "zstd").flops(Form.of({"w": drawn(256)})) == (6 * 256 + 20 * 65, 2 * 256 + 5 * 65)
    assert make("delta", "int8", feedback=True).flops(Form.of({"w": drawn(100)})) == (encode + decode, decode)
