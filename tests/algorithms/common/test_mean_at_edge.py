from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.model_rounds import Weighting, mean_at_edge, mean_of_models
from fedsim.algorithms.fedavg import FedAvg
from fedsim.params import Model
from fedsim.wire import ModelUpdate


def reply(client: int, value: float, num_samples: int) -> Reply[ModelUpdate]:
    model = Model("linear", {"w": np.array([value, -value], np.float32)}, {})
    return Reply(client, 0, "train", 0, 0, 1.0, ModelUpdate.of(model, num_samples))


REPLIES = st.lists(
    st.tuples(st.floats(-1, 1, width=32), st.integers(1, 50), st.integers(0, 2)), min_size=1, max_size=8
)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@given(rows=REPLIES)
def test_the_mean_of_means_at_edges_is_the_mean_of_all(
    weighting: Weighting, rows: list[tuple[float, int, int]]
) -> None:
    replies = [reply(client, value, size) for client, (value, size, _) in enumerate(rows)]
    at_server = []
    for edge in {place for *_, place in rows}:
        its = [one for one, (*_, place) in zip(replies, rows, strict=True) if place == edge]
        update, weight = mean_at_edge(its, weighting)
        assert update.num_samples == sum(one.message.num_samples for one in its)
        at_server.append(replace(its[0], message=update, discount=weight))
    means = [mean_of_models(some, weighting) for some in (at_server, replies)]
    np.testing.assert_allclose(means[0].params["w"], means[1].params["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hook", ["merge", "send"])
def test_a_subclass_with_a_hook_of_its_own_says_itself_whether_it_can_have_edges(hook: str) -> None:
    async def own(*_: Any) -> None: ...

    def no_edges(**members: Any) -> str | None:
        cls: Any = type("Derived", (FedAvg,), members)
        why: str | None = cls.no_edges
        return why

    assert FedAvg.no_edges is None
    assert f"its own {hook}" in str(no_edges(**{hook: own}))
    assert no_edges(**{hook: own, "no_edges": None}) is None
    assert no_edges(train=own) is None
