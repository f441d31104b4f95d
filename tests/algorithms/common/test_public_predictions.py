"""Public samples: drawing, announcing, naming, averaging."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common import public_predictions
from fedsim.algorithms.common.public_predictions import Announced
from fedsim.engine.jobs import InlineSamples, PublicSamples
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.wire import LogitsUp, PublicBatch, PublicData, indices_digest

KEY = Key.root(4)
ASKED = np.array([4, 9, 1])


def _values(positions: Array) -> Array:
    return np.stack([positions, positions + 1], axis=1).astype(np.float32) / 255


SERVER: Any = SimpleNamespace(public_at_clients=False, public_values=_values)


def _message(values: Any, named: Any = None, about: Any = ASKED) -> LogitsUp:
    named = None if named is None else np.array(named, np.int64)
    array = np.array(values, np.float32).reshape(-1, 2)
    return LogitsUp(array, "logits", 1.0, indices_digest(about if named is None else named), named)


def _reply(client: int, message: LogitsUp) -> Reply:
    return Reply(client, 0, "share", 0, 0, 1.0, message)


def test_a_draw_is_without_replacement_and_of_all_by_default() -> None:
    assert sorted(public_predictions.draw(KEY, 10, None).tolist()) == list(range(10))
    assert sorted(public_predictions.draw(KEY, 10, 99).tolist()) == list(range(10))
    some = public_predictions.draw(KEY, 10, 4)
    assert some.dtype == np.int64
    assert len(set(some.tolist())) == 4
    assert public_predictions.draw(KEY, 10, 4).tolist() == some.tolist()
    assert public_predictions.draw(KEY.child("other"), 10, 4).tolist() != some.tolist()


def test_a_draw_may_be_with_replacement() -> None:
    some = public_predictions.draw(KEY, 50, 49, replacement=True)
    assert len(some) == 49 > len(set(some.tolist()))
    assert len(public_predictions.draw(KEY, 3, None, replacement=True)) == 3
    assert len(public_predictions.draw(KEY, 3, 50, replacement=True)) == 3


def test_samples_are_named_where_clients_hold_them_and_sent_where_not() -> None:
    holding: Any = SimpleNamespace(public_at_clients=True)
    named = public_predictions.announce(holding, ASKED)
    assert isinstance(named, PublicBatch)
    found = Announced.of(named).samples()
    assert isinstance(found, PublicSamples)
    assert found.positions.tolist() == [4, 9, 1]
    sent = public_predictions.announce(SERVER, ASKED)
    assert isinstance(sent, PublicData)
    assert (sent.indices.tolist(), sent.values.dtype.name) == ([4, 9, 1], "uint8")
    kept = Announced.of(sent)
    assert kept.values is sent.values  # a byte a number, as it came
    inline = kept.samples()
    assert isinstance(inline, InlineSamples)
    assert inline.x.tobytes() == _values(ASKED).tobytes()
    assert inline.y is None


def test_some_of_either_can_be_chosen() -> None:
    named = np.array([1, 4])
    some = Announced(ASKED).samples(named)
    assert isinstance(some, PublicSamples)
    assert some.positions.tolist() == [1, 4]
    sent = Announced(ASKED, _values(ASKED)).samples(named)
    assert isinstance(sent, InlineSamples)
    assert sent.x.tolist() == _values(named).tolist()


@given(arrays(np.uint8, st.tuples(st.integers(0, 4), st.integers(1, 5))))
def test_images_of_eight_bits_come_back_bit_for_bit(pixels: Array) -> None:
    for values in (public_predictions.restored(pixels), pixels.astype(np.float32) / np.float32(255)):
        packed = public_predictions.compact(values)
        assert packed.dtype == np.uint8
        assert packed.tolist() == pixels.tolist()
        assert public_predictions.restored(packed).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.5, 1.0], np.float32),  # 127.5 is no step
        np.array([-1 / 255], np.float32),
        np.array([256 / 255], np.float32),
        np.array([0.3000001], np.float32),
        np.array([np.nan, 0.0], np.float32),
        np.array([1, 2], np.int64),  # texts
    ],
)
def test_other_samples_stay_as_they_are(values: Array) -> None:
    assert public_predictions.compact(values) is values
    assert public_predictions.restored(values) is values


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (_message([[0, 0]] * 3), None),
        (_message([[0, 0]] * 2, [1, 4]), None),
        (_message([], []), None),
        (_message([[0, 0]] * 3, about=np.array([4, 1, 9])), "predictions on other public samples"),
        (_message([[0, 0]] * 2, [4, 4]), "predictions on other public samples"),
        (_message([[0, 0]] * 2, [4, 2]), "predictions on other public samples"),
        (_message([[0, 0]] * 2), r"predictions of shape (2, 2), not (3, 2)"),
    ],
)
def test_replies_about_other_samples_are_found(message: LogitsUp, reason: str | None) -> None:
    found = public_predictions.unusable(message, ASKED, 2, "logits")
    assert (found is None) if reason is None else (found is not None and found.startswith(reason))
    assert (
        public_predictions.unusable(_message([[0, 0]] * 3), ASKED, 5, "logits")
        == "predictions of shape (3, 2), not (3, 5)"
    )


@pytest.mark.parametrize(
    ("rows", "good"),
    [
        ([[0.25, 0.75]], True),
        ([[1.0, 0.0], [0.5, 0.5004]], True),
        ([[1.1, -0.1]], False),
        ([[0.5, 0.6]], False),
        ([[np.nan, 1.0]], False),
    ],
)
def test_probabilities_are_known(rows: Any, good: bool) -> None:
    for some in (np.array(rows, np.float32), np.empty((0, 2), np.float32)):
        positions = np.arange(len(some))
        message = public_predictions.predictions(some, positions, "probs")
        found = public_predictions.unusable(message, positions, 2, "probs")
        assert (found is None) is (good or not len(some))


def test_rows_are_found_by_name() -> None:
    assert public_predictions.rows_of(ASKED, np.array([1, 4])).tolist() == [2, 0]
    assert public_predictions.rows_of(ASKED, np.array([], np.int64)).tolist() == []


def test_each_sample_is_averaged_over_those_who_gave_it() -> None:
    replies = [_reply(0, _message([[1, 2], [3, 4]], [1, 4])), _reply(1, _message([[5, 6]], [1]))]
    values, given_rows = public_predictions.stacked(ASKED, 2, replies)
    assert values.tolist() == [[[3, 4], [0, 0], [1, 2]], [[0, 0], [0, 0], [5, 6]]]
    assert given_rows.tolist() == [[True, False, True], [False, False, True]]
    mean, known = public_predictions.mean_by_sample(values, given_rows)
    assert (mean.dtype.name, mean.tolist()) == ("float32", [[3, 4], [3, 4]])
    assert known.tolist() == [True, False, True]


def test_a_sample_asked_for_twice_may_be_named_as_often_and_stands_at_both_places() -> None:
    asked = np.array([4, 1, 4])
    for named, rows in (([4, 1], [[1, 2], [3, 4]]), ([1, 4, 4], [[3, 4], [1, 2], [1, 2]])):
        message = _message(rows, named)
        assert public_predictions.unusable(message, asked, 2, "logits") is None
        values, given_rows = public_predictions.stacked(asked, 2, [_reply(0, message)])
        assert values.tolist() == [[[1, 2], [3, 4], [1, 2]]]
        assert given_rows.tolist() == [[True] * 3]
    for named in ([1, 1], [4, 4, 4], [2]):
        fault = public_predictions.unusable(_message([[0, 0]] * len(named), named), asked, 2, "logits")
        assert fault == "predictions on other public samples than were asked for"


def test_form_and_temperature_are_looked_at() -> None:
    message = _message([[0, 0]] * 3)
    assert public_predictions.unusable(message, ASKED, 2, "logits", 1.0) is None
    fault = public_predictions.unusable(message, ASKED, 2, "probs", 1.0)
    assert fault == "logits of temperature 1.0, not probs of temperature 1.0"
    assert public_predictions.unusable(message, ASKED, 2, "logits", 2.0) is not None


def test_what_nobody_gave_has_no_mean() -> None:
    mean, known = public_predictions.mean_by_sample(
        *public_predictions.stacked(ASKED, 2, [_reply(0, _message([], []))])
    )
    assert (mean.shape, known.tolist()) == ((0, 2), [False] * 3)
