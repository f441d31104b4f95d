import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim.rng import Key, SeededStream

Name = st.one_of(st.text(max_size=5), st.integers(-(2**70), 2**70))
Names = st.lists(Name, max_size=4)


def _path(names: list[str | int]) -> Key:
    return Key.root(0).child(*names)


def test_streams_do_not_change_between_versions() -> None:
    key = Key.root(7).child("train", 3, 0)
    assert Key.root(0).digest.hex() == "5a6197168388910e8bc5dafd6cfe48f0"
    assert Key.root(-1).digest.hex() == "5d1ef26671d536ae99231a5dcb470216"
    assert (key.digest.hex(), key.counts) == ("70942fc1ba82c4ac042f94f9cf67b111", (3, 0))
    assert key.seed == key.torch().initial_seed() == 489131367238440080
    # The raw stream: NumPy promises to keep it, unlike the distributions made from it.
    assert key.numpy().bit_generator.random_raw() == 14278216323147347666


@given(Names, Names)
def test_paths_are_equal_only_if_their_names_are(left: list[str | int], right: list[str | int]) -> None:
    same = [(type(name), name) for name in left] == [(type(name), name) for name in right]
    assert (_path(left) == _path(right)) is same


@given(Names, Names)
def test_a_child_of_a_child_is_one_path(upper: list[str | int], lower: list[str | int]) -> None:
    assert _path(upper).child(*lower) == _path(upper + lower)


@given(Names, Names)
def test_paths_have_equal_seeds_only_if_they_are_equal(left: list[str | int], right: list[str | int]) -> None:
    assert (_path(left).seed == _path(right).seed) is (_path(left) == _path(right))


@given(Names, st.lists(st.tuples(*[st.integers(0, 2**63 - 1)] * 2), min_size=1, max_size=5))
def test_draws_of_many_keys_are_those_of_each(words: list[str | int], numbers: list[tuple[int, int]]) -> None:
    purpose = [word for word in words if isinstance(word, str)]
    keys = [Key.root(0).child(first, *purpose, second) for first, second in numbers]
    assert keys[0].seeds(numbers) == [key.seed for key in keys]
    assert keys[0].normals(numbers) == [key.normal() for key in keys]


def test_draws_of_keys_without_numbers_are_the_same() -> None:
    key = Key.root(0).child("a")
    assert key.seeds([(), ()]) == [key.seed, key.seed]


def test_a_sibling_has_another_last_number() -> None:
    key = Key.root(0).child("a", 1, "b")
    assert key.sibling(2) == Key.root(0).child("a", 2, "b")
    assert key.child(3).sibling(4) == key.child(4)


def test_where_numbers_stand_among_words_makes_a_difference() -> None:
    root = Key.root(0)
    paths = [root.child(1, "a", 2), root.child("a", 1, 2), root.child(1, 2, "a"), root.child(2, "a", 1)]
    paths += [root.child("a", 1), root.child("a", 1, 2, 3), root.child("a", 1, 2, 3, 4), root.child("a", 4)]
    assert len({path.seed for path in paths}) == len(set(paths)) == len(paths)


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


def test_draws_that_differ_in_numbers_are_uniform_and_not_correlated() -> None:
    key = Key.root(0).child("client", 0, 0, "fit")
    seeds = np.array(key.seeds([(client, turn) for client in range(200) for turn in range(100)])) / 2**63
    # Chi-squared with 99 degrees of freedom, 99.99% below 161: 100 bins of 200 draws each.
    assert ((np.bincount((seeds * 100).astype(int), minlength=100) - 200) ** 2 / 200).sum() < 161
    table = seeds.reshape(200, 100)
    for series in (table[:20], table.T[:20]):  # of clients over turns, of turns over clients
        correlation = np.corrcoef(series) - np.eye(20)
        assert np.abs(correlation).max() < 4.5 / np.sqrt(series.shape[1])


def test_a_seeded_stream_begins_anew_with_each_start() -> None:
    stream = SeededStream("order", "train")
    stream.start(5)
    first = stream.draw(7).tolist()
    stream.start(6)
    assert stream.draw(7).tolist() != first
    stream.start(5)
    assert [*stream.draw(3).tolist(), *stream.draw(4).tolist()] == first


def test_a_seeded_stream_is_philox_keyed_by_seed_and_purpose() -> None:
    stream = SeededStream("order", "train")
    stream.start(2**63 + 5)
    purpose = int.from_bytes(Key.root(0).child("order", "train").digest[:8], "little")
    philox = np.random.Philox(key=np.array([2**63 + 5, purpose], np.uint64))
    assert stream.draw(9).tolist() == philox.random_raw(9).tolist()


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
