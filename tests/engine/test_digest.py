from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config import Config
from fedsim.engine.digest import digest
from fedsim.engine.jobs import (
    Call,
    ClientSamples,
    Evaluate,
    Fit,
    GlobalTest,
    InlineSamples,
    Predict,
    PublicSamples,
    Stream,
    per_client,
    per_sample,
    shared,
)
from fedsim.engine.losses import empirical_loss
from fedsim.engine.optimisers import Adam, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model


class Colour(Enum):
    RED = 1
    BLUE = 2


class Settings(Config):
    weight: float = 1.0


@dataclass(frozen=True)
class OtherDescent:
    loss: Any = empirical_loss
    correct: Any = None


def other_loss(models: Any, batches: Any, extras: Any) -> Any:
    raise NotImplementedError


def add(left: Any, right: Any) -> Any:
    return left + right


def model(value: float = 1.0, label: str = "mlp", dtype: Any = np.float32, name: str = "w") -> Model:
    return Model(label, {name: np.full((2, 3), value, dtype)}, {"mean": np.zeros(2, np.float32)})


ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)
STREAM = Stream(ClientSamples(3), 32)
FIT = Fit(
    step=Descent(),
    models={"model": model(), "teacher": model(2.0)},
    trained=("model",),
    streams={"train": STREAM, "public": Stream(PublicSamples(np.arange(3)), 8)},
    optimiser=Sgd(0.1),
    num_steps=5,
    seed=7,
    extras={"targets": per_sample(ROWS, "public"), "mu": shared(np.full((), 0.5, np.float32))},
)
FITS: dict[str, list[Any]] = {
    "step": [
        Descent(other_loss),
        Descent(correct=add),  # type: ignore[arg-type]
        Descent(partial(add, right=1)),
        Descent(partial(add, right=2)),
        OtherDescent(),
        add,
    ],
    "models": [
        {"model": model(1.5), "teacher": model(2.0)},
        {"model": model(), "teacher": model(2.0, "cnn")},
        {"model": model(dtype=np.float64), "teacher": model(2.0)},
        {"model": model(name="v"), "teacher": model(2.0)},
        {"model": model()},
        {"teacher": model(2.0), "model": model()},
    ],
    "trained": [("teacher",), ("model", "teacher"), ("teacher", "model")],
    "streams": [
        {**FIT.streams, "train": replace(STREAM, batch_size=31)},
        {**FIT.streams, "train": replace(STREAM, shuffled=False)},
        {**FIT.streams, "train": replace(STREAM, samples=ClientSamples(4))},
        {**FIT.streams, "train": replace(STREAM, samples=ClientSamples(3, "val"))},
        {**FIT.streams, "public": Stream(PublicSamples(np.array([0, 2, 1])), 8)},
        {**FIT.streams, "public": Stream(PublicSamples(np.arange(3), labelled=True), 8)},
        {**FIT.streams, "other": STREAM},
    ],
    "optimiser": [Sgd(0.2), Sgd(0.1, 0.9), Adam(0.1), Adam(0.1, beta1=0.8)],
    "num_steps": [6],
    "seed": [8],
    "extras": [
        {},
        {**FIT.extras, "mu": shared(np.full((), 0.25, np.float32))},
        {**FIT.extras, "mu": shared(np.full((), 0.5))},
        {**FIT.extras, "mu": per_client(np.full((), 0.5, np.float32))},
        {**FIT.extras, "mu": shared({"w": np.full((), 0.5, np.float32)})},
        {**FIT.extras, "targets": per_sample(ROWS, "train")},
        {**FIT.extras, "targets": per_sample(ROWS.reshape(2, 3), "public")},
    ],
    "states": [{}, {"model": {"momentum/w": ROWS}}, {"model": {"momentum/w": ROWS + 1}}],
}
PREDICT = Predict(model(), GlobalTest(), 16)
EVALUATE = Evaluate(model(), (ClientSamples(1, "test"), GlobalTest()), 16)
CALL = Call(add, (ROWS, 1.5), 6.0)
OTHERS: list[Any] = [
    PREDICT,
    replace(PREDICT, model=model(3.0)),
    replace(PREDICT, samples=InlineSamples(ROWS)),
    replace(PREDICT, samples=InlineSamples(ROWS, np.arange(3))),
    replace(PREDICT, batch_size=8),
    EVALUATE,
    replace(EVALUATE, model=model(3.0)),
    replace(EVALUATE, parts=(GlobalTest(), ClientSamples(1, "test"))),
    replace(EVALUATE, parts=(ClientSamples(1, "test"),)),
    replace(EVALUATE, batch_size=8),
    CALL,
    replace(CALL, function=other_loss),
    replace(CALL, arguments=(ROWS, 1.25)),
    replace(CALL, arguments=(ROWS, 1.5, None)),
    replace(CALL, arguments=((ROWS, 1.5),)),
    replace(CALL, arguments=([ROWS, 1.5],)),
]
PROGRAM = """
import numpy as np
from fedsim.engine.digest import digest
from fedsim.engine.jobs import Fit, Stream, ClientSamples, shared
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent
from fedsim.params import Model
model = Model("mlp", {"w": np.arange(4, dtype=np.float32)})
stream = Stream(ClientSamples(1), 8)
extras = {"a": shared(np.ones(2)), "b": shared({"c": np.zeros(3)})}
print(digest(Fit(Descent(), {"model": model}, ("model",), {"train": stream}, Sgd(0.1), 3, 5, extras)))
"""


def test_every_field_of_a_fit_counts() -> None:
    assert set(FITS) == {field.name for field in fields(Fit)}
    jobs = [FIT, *(replace(FIT, **{name: value}) for name, values in FITS.items() for value in values)]
    digests = [digest(job) for job in jobs]
    assert len(set(digests)) == len(jobs) == 1 + sum(map(len, FITS.values()))
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in digests)
    assert digests == [digest(job) for job in jobs]


def test_every_field_of_the_others_counts() -> None:
    digests = [digest(job) for job in [FIT, *OTHERS]]
    assert len(set(digests)) == len(digests)


def test_what_a_call_costs_decides_nothing() -> None:
    assert digest(replace(CALL, flops=7.0)) == digest(CALL)


def test_equal_jobs_of_other_objects_and_layouts_are_equal() -> None:
    again = replace(FIT, models={"model": model(), "teacher": model(2.0)}, step=Descent(empirical_loss))
    assert digest(again) == digest(FIT)
    turned = np.asfortranarray(ROWS), ROWS.astype(">f4"), ROWS[:, :].copy()
    assert {digest(replace(CALL, arguments=(rows, 1.5))) for rows in turned} == {digest(CALL)}


def _of(*arguments: Any) -> str:
    return digest(Call(add, arguments, 1.0))


VALUES: list[Any] = [
    *(0, 1, -1, False, True, None, 0.0, -0.0, 1.0, float("inf"), float("nan"), "", "0", b"", b"0", "None"),
    *((), [], {}, (0,), (0, 0), ((0,), 0), (0, (0,)), {"a": 0}, {0: "a"}, {"b": 0, "a": 0}, {"a": 0, "b": 0}),
    *(Colour.RED, Colour.BLUE, Colour, Settings(), Settings(weight=2.0), TrainingConfig(), add, np.sum, len),
    *(torch.relu, partial(add, 1), partial(add, right=1), np.float32(0), np.int64(0), np.zeros(0)),
    *(
        np.zeros(1),
        np.zeros((1, 1)),
        np.zeros((0, 2)),
        np.array(["a"]),
        np.array([b"a"]),
        np.array([True]),
        np.array(1j),
    ),
]


def test_values_of_every_kind_differ() -> None:
    digests = [_of(value) for value in VALUES]
    assert len(set(digests)) == len(VALUES)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(PLAIN, PLAIN)
def test_digests_are_equal_where_values_are_the_same_and_nowhere_else(one: Any, other: Any) -> None:
    # repr tells apart what counts: 1 and True, 0.0 and -0.0, and the order of mappings.
    assert (_of(one) == _of(other)) is (repr(one) == repr(other))


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_pieces_do_not_run_into_each_other(one: list[bytes], other: list[bytes]) -> None:
    assert (_of(*one) == _of(*other)) is (one == other)


def test_it_is_the_same_in_every_process() -> None:
    outputs = [
        subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    # Written down, so that a change of the format is noticed: digests may be kept on a disk.
    assert outputs == ["9672a16ce4933d2c4e04f7c6e324a4ec"] * 2


def _local() -> Any:
    def inner() -> None: ...

    return inner


def _local_step() -> Any:
    @dataclass(frozen=True)
    class Inner:
        rate: float = 1.0

    return Inner()


@pytest.mark.parametrize(
    ("job", "name"),
    [
        (Call(lambda: 1, (), 1.0), "<lambda>"),
        (Call(_local(), (), 1.0), "_local.<locals>.inner"),
        (Call(np.random.Generator(np.random.PCG64(0)).normal, (), 1.0), "normal"),
        (replace(FIT, step=Descent(lambda *_: None)), "<lambda>"),  # type: ignore[arg-type]
        (replace(FIT, step=_local_step()), "_local_step.<locals>.Inner"),
    ],
)
def test_what_no_path_leads_to_is_refused(job: Any, name: str) -> None:
    with pytest.raises(ValueError, match=r"define it with def or class at the top of a module") as caught:
        digest(job)
    assert name in str(caught.value)


@pytest.mark.parametrize("value", [{1, 2}, torch.zeros(2), object(), np.array([None]), np.zeros(1, "M8[s]")])
def test_what_has_no_digest_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"has no digest|only numbers and texts have a digest"):
        _of(value)
