import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim.rng import Key

Name = st.one_of(st.text(max_size=5), st.integers(-(2**70), 2**70))
Names = st.lists(Name, max_size=4)


def _path(names: list[str | int]) -> Key:
    return Key.root(0).child(*names)


def test_streams_do_not_change_between_versions() -> None:
    key = Key.root(7).child("train", 3, 0)
    assert Key.root(0).digest.hex() == "5a6197168388910e8bc5dafd6cfe48f0"
    assert Key.root(-1).digest.hex() == "5d1ef26671d536ae99231a5dcb470216"
    assert key.digest.hex() == "11e41da6f63781251cb1328a3c55c3ee"
    assert key.seed == key.torch().initial_seed() == 1351251391943733768
    # The raw stream: NumPy promises to keep it, unlike the distributions made from it.
    assert key.numpy().bit_generator.random_raw() == 8332398886327757127


@given(Names, Names)
def test_paths_are_equal_only_if_their_names_are(left: list[str | int], right: list[str | int]) -> None:
    same = [(type(name), name) for name in left] == [(type(name), name) for name in right]
    assert (_path(left) == _path(right)) is same


@given(Names, Names)
def test_a_child_of_a_child_is_one_path(upper: list[str | int], lower: list[str | int]) -> None:
    assert _path(upper).child(*lower) == _path(upper + lower)


def test_words_and_numbers_of_one_spelling_differ() -> None:
    root = Key.root(0)
    assert len({root.child(1), root.child("1"), root.child("i1"), root.child("s1"), root}) == 5
    assert root.child("ab", "c") != root.child("a", "bc")


def test_numpy_integers_are_numbers() -> None:
    assert Key.root(0).child(np.int64(5)) == Key.root(0).child(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [1.0, None, b"train"])
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(TypeError):
        Key.root(0).child(name)  # type: ignore[arg-type]


def test_seeds_differ() -> None:
    assert len({Key.root(seed) for seed in range(-50, 50)}) == 100


@given(st.integers())
def test_a_seed_fits_63_bits(seed: int) -> None:
    assert 0 <= Key.root(seed).seed < 2**63


def test_each_generator_starts_anew_whatever_was_drawn_before() -> None:
    key = Key.root(0).child("a")
    first = key.numpy().random(8)
    Key.root(0).child("b").numpy().random(1000)
    key.torch()
    assert key.numpy().random(8).tolist() == first.tolist()
    tensor = torch.rand(8, generator=key.torch())
    assert torch.equal(torch.rand(8, generator=key.torch()), tensor)


def test_streams_of_siblings_are_not_correlated() -> None:
    streams = np.stack([Key.root(0).child("client", k).numpy().standard_normal(2000) for k in range(20)])
    correlation = np.corrcoef(streams) - np.eye(20)
    # 190 pairs, each with a standard deviation of 1 / sqrt(2000) = 0.022.
    assert np.abs(correlation).max() < 0.09
    assert abs(float(streams.mean())) < 0.02


def test_no_global_generator_is_touched() -> None:
    before = torch.random.get_rng_state()
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    Key.root(0).torch()
    Key.root(0).numpy().random()
    assert torch.equal(torch.random.get_rng_state(), before)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert str(state) == str(after)


def test_keys_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "from fedsim.rng import Key; import sys; sys.stdout.write(Key.root(3).child('x', 1).digest.hex())"
    )
    digests = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert digests == {Key.root(3).child("x", 1).digest.hex()}


def test_normal_draws_have_the_moments_of_the_law() -> None:
    draws = np.array([Key.root(0).child(n).normal() for n in range(20_000)])
    assert abs(draws.mean()) < 0.02
    assert abs(draws.std() - 1) < 0.02
    assert abs((draws < -1).mean() - 0.1587) < 0.01
    assert abs((np.abs(draws) > 2).mean() - 0.0455) < 0.005


def test_normal_draws_are_finite_at_the_ends() -> None:
    assert Key(b"\x00" * 16).normal() == pytest.approx(8.5717, abs=1e-3)  # the largest: sqrt(-2 log 2**-53)
    assert Key(b"\xff" * 16).normal() == 0.0
