"""FedMe's arithmetic: the mean of copies, the paper's running example, and the draws."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.algorithms.common.fedme_exchange import (
    NOBODY,
    ExchangedModel,
    ModelPair,
    Stored,
    draw,
    means_of_copies,
    outputs_of,
)
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.wire import num_parameters


def _model(value: float, architecture: str = "a") -> Model:
    return Model(architecture, {"w": np.full(2, value, np.float32)})


def _value(model: Model) -> float:
    return float(model.params["w"][0])


# The mean of copies


def test_running_example_of_the_paper() -> None:
    # Section 4.3, clients 1 to 5; w_p of client i is 10 i, its exchanged model as trained 100 i.
    own = [(i, _model(10.0 * i)) for i in range(1, 6)]

    # First round: clients 1 to 5 have the models of 3, 4, 1, 5, 2.
    exchanged = dict(zip(range(1, 6), (3, 4, 1, 5, 2), strict=True))
    means = means_of_copies([*own, *((exchanged[i], _model(100.0 * i)) for i in range(1, 6))])
    after = {owner: _value(mean) for (owner, _), mean in means.items()}
    assert after[1] == (10 + 300) / 2  # "aggregates w_p1 and w_ex3"
    assert after == {1: 155.0, 2: 260.0, 3: 65.0, 4: 120.0, 5: 225.0}
    choices = {1: 3, 2: 2, 3: 3, 4: 4, 5: 2}  # a_i: 1 and 5 prefer what they were lent
    assert {i: after[a] for i, a in choices.items()} == {1: 65.0, 2: 260.0, 3: 65.0, 4: 120.0, 5: 260.0}
    assert all(a in (i, exchanged[i]) for i, a in choices.items())

    # Second round: the models of 3, 4, 1, 2, 4; the model of client 4 goes to two of them.
    exchanged = dict(zip(range(1, 6), (3, 4, 1, 2, 4), strict=True))
    means = means_of_copies([*own, *((exchanged[i], _model(100.0 * i)) for i in range(1, 6))])
    after = {owner: _value(mean) for (owner, _), mean in means.items()}
    assert after == {1: 155.0, 2: 210.0, 3: 65.0, 4: 246.66667175292969, 5: 50.0}
    assert after[4] == pytest.approx((40 + 200 + 500) / 3)
    choices = {1: 1, 2: 4, 3: 3, 4: 4, 5: 4}
    assert all(a in (i, exchanged[i]) for i, a in choices.items())


def test_architectures_are_kept_apart() -> None:
    # A client never got the architecture that it had chosen, and others have copies of that one.
    means = means_of_copies(
        [(0, _model(1.0)), (0, _model(5.0, "b")), (0, _model(3.0)), (1, _model(7.0, "b"))]
    )
    assert {line: _value(mean) for line, mean in means.items()} == {
        (0, "a"): 2.0,
        (0, "b"): 5.0,
        (1, "b"): 7.0,
    }


@given(st.integers(1, 9), st.floats(-3, 3, width=32))
def test_identical_copies_average_to_themselves(copies: int, value: float) -> None:
    (mean,) = means_of_copies([(4, _model(value))] * copies).values()
    assert mean.digest() == _model(value).digest()


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-3, 3, width=32)), min_size=1, max_size=12))
def test_every_line_has_the_plain_mean(copies: list[tuple[int, float]]) -> None:
    means = means_of_copies([(owner, _model(value)) for owner, value in copies])
    assert {owner for owner, _ in means} == {owner for owner, _ in copies}
    for (owner, _), mean in means.items():
        values = [value for its, value in copies if its == owner]
        assert _value(mean) == pytest.approx(sum(values) / len(values), abs=1e-6)


# The draws

KEY = Key.root(5)


def _counts(client: int, groups: dict[int, int], stored: list[int]) -> Counter[int | None]:
    return Counter(draw(KEY.child(number), client, groups, stored) for number in range(300))


def test_models_are_exchanged_within_a_group_and_evenly() -> None:
    counts = _counts(1, {0: 0, 1: 0, 2: 1, 3: 0}, [0, 1, 2, 3, 4])
    assert set(counts) == {0, 3}
    assert min(counts.values()) > 100


def test_who_is_alone_in_its_group_gets_any_of_the_cohort() -> None:
    assert set(_counts(2, {0: 0, 1: 0, 2: 1}, [0, 1, 2, 3])) == {0, 1}


def test_who_is_alone_in_the_cohort_gets_any_that_is_stored() -> None:
    assert set(_counts(2, {2: 0}, [0, 2, 3])) == {0, 3}


def test_who_has_sent_nothing_yet_gets_any_of_the_cohort() -> None:
    assert set(_counts(2, {0: 0, 1: 1}, [0, 1, 3])) == {0, 1}


def test_where_there_is_no_other_there_is_none_to_get() -> None:
    assert draw(KEY, 0, {0: 0}, [0]) is None
    assert draw(KEY, 0, {}, []) is None


def test_draws_of_clients_are_independent() -> None:
    # No permutation: sometimes a model goes to two clients (D-004-05).
    groups = dict.fromkeys(range(3), 0)
    rounds = [[draw(KEY.child(n), client, groups, [0, 1, 2]) for client in range(3)] for n in range(60)]
    assert any(len(set(owners)) == 2 for owners in rounds)
    assert any(len(set(owners)) == 3 for owners in rounds)
    assert all(owner != client for owners in rounds for client, owner in enumerate(owners))


# The outputs


def test_only_new_models_are_asked_and_each_once() -> None:
    asked: list[str] = []

    async def predict_each(models: Any, samples: Any) -> list[Any]:
        asked.extend(model.architecture for model in models)
        return [np.zeros((3, 2), np.float32) for _ in models]

    server: Any = SimpleNamespace(num_public=3, public=lambda positions: positions, predict_each=predict_each)
    known, new = np.ones((3, 2), np.float32), _model(1.0, "new")
    stored = {0: Stored(_model(0.0, "old"), known), 1: Stored(new), 2: Stored(new), 3: Stored(_model(2.0))}
    after, outputs = asyncio.run(outputs_of(server, stored, [0, 1, 2]))
    assert asked == ["new"]
    assert list(outputs) == [0, 1, 2]
    assert [one.tolist() for one in outputs.values()] == [known.tolist()] + [[[0.5, 0.5]] * 3] * 2
    assert after[1].outputs is not None
    assert after[3].outputs is None
    assert stored[1].outputs is None
    asyncio.run(outputs_of(server, after, [0, 1, 2]))
    assert asked == ["new"]


def test_models_with_outputs_that_are_no_numbers_are_no_longer_stored() -> None:
    async def predict_each(models: Any, samples: Any) -> list[Any]:
        return [np.full((3, 2), [0.0, _value(model)], np.float32) for model in models]

    warned: list[Any] = []
    server: Any = SimpleNamespace(
        num_public=3,
        public=lambda positions: positions,
        predict_each=predict_each,
        warn=lambda event, **values: warned.append((event, values["client"])),
    )
    stored = {k: Stored(_model(value)) for k, value in enumerate((0.0, np.inf, np.nan, 0.0))}
    after, outputs = asyncio.run(outputs_of(server, stored, [0, 1, 2]))
    assert (list(outputs), sorted(after)) == ([0], [0, 3])
    assert warned == [("model left out", 1), ("model left out", 2)]
    assert sorted(stored) == [0, 1, 2, 3]


# The messages


def test_messages_count_trainable_scalars_alone() -> None:
    buffered = Model("a", {"w": np.zeros(5, np.float32)}, {"mean": np.zeros(3, np.float32)})
    assert num_parameters(ExchangedModel("a", buffered.params, buffered.buffers, 2)) == 5
    both = ModelPair.of(buffered, _model(1.0, "b"), 3, 3)
    assert num_parameters(both) == 7
    assert both.personal.digest() == buffered.digest()
    assert both.exchanged is not None
    assert both.exchanged.digest() == _model(1.0, "b").digest()
    alone = ModelPair.of(buffered, None, NOBODY, 2)
    assert num_parameters(alone) == 5
    assert alone.exchanged is None
