from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedsim.engine.jobs import ClientSamples, Extra, Fitted, Score, Stream, check_names, per_sample
from tests.engine.conftest import Start

ROWS = np.zeros((11, 3), np.float32)


def test_an_extra_follows_a_stream_or_none() -> None:
    assert Extra({"a": ROWS}).stream == ""
    assert (per_sample(ROWS, "public").value is ROWS, per_sample(ROWS, "public").stream) == (True, "public")


def test_a_tree_follows_no_stream() -> None:
    with pytest.raises(ValueError, match="is one array"):
        Extra({"a": ROWS}, "train")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"trained": ()}, r"trained = \(\): name at least one of the job's models, model"),
        ({"trained": ("modl",)}, r"'modl'.*the job's models, model"),
        ({"streams": {}}, "at least one stream"),
        (
            {"extras": {"teacher": per_sample(ROWS, "public")}},
            "'teacher' follows stream 'public'.*one of train",
        ),
    ],
)
def test_names_that_do_not_fit_together_are_refused(
    start: Start, changes: dict[str, Any], match: str
) -> None:
    names: dict[str, Any] = {
        "models": {"model": start()},
        "trained": ("model",),
        "streams": {"train": Stream(ClientSamples(0), 4)},
        "extras": {},
    }
    check_names(**names)
    with pytest.raises(ValueError, match=match):
        check_names(**names | changes)


def test_the_one_model_of_a_fit(start: Start) -> None:
    model = start()
    assert Fitted({"any": model}, 0.0, 1).model is model
    with pytest.raises(ValueError, match="too many values"):
        _ = Fitted({"a": model, "b": model}, 0.0, 1).model


def test_accuracy_is_the_share_of_hits() -> None:
    assert Score(3, 4, 1.0).accuracy == 0.75
    assert math.isnan(Score(0, 0, 0.0).accuracy)
    assert math.isnan(Score(None, 4, 1.0).accuracy)


def test_loss_is_the_mean_over_samples() -> None:
    assert Score(None, 4, 1.0).loss == 0.25
    assert math.isnan(Score(0, 0, 0.0).loss)
