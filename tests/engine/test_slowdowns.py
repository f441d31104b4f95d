"""When work ends on devices that slow down: by hand, and against a device that works step by step."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.slowdowns import Slowdowns
from fedsim.network.fault_settings import FaultConfig
from fedsim.network.faults import RunFault
from fedsim.rng import Key

S = 10**9


def slow(factor: float, members: Any = None, **settings: Any) -> RunFault:
    config = FaultConfig.model_validate({"kind": "slow", "factor": factor, **settings})
    return RunFault(config, Key.root(3), members)


WINDOW: dict[str, Any] = {"at": "10 s", "for": "4 s", "every": "20 s"}


@pytest.mark.parametrize(
    ("began_s", "work_s", "end_s"),
    [
        (0, 10, 10),  # before
        (0, 11, 14),  # one of four seconds' work takes them all
        (0, 12, 15),
        (10, 0.5, 12),
        (12, 0.5, 14),
        (13, 5.25, 19),
        (14, 16, 30),
        (9, 19, 34),  # the window before and the one that comes again
        (12, 0, 12),
    ],
)
def test_a_job_is_slowed_for_its_part(began_s: float, work_s: float, end_s: float) -> None:
    times = [int(each * S) for each in (began_s, work_s, end_s)]
    slowdowns = Slowdowns([slow(4, **WINDOW)])
    assert slowdowns.end_ns(0, *times[:2]) == times[2]
    assert slowdowns.work(0, times[0], times[2]) == times[1]


def test_factors_multiply_and_a_fault_may_have_no_end() -> None:
    slowdowns = Slowdowns([slow(2), slow(1.5, at="6 s")])
    assert slowdowns.end_ns(0, 0, 5 * S) == (6 + 2 * 3) * S
    assert slowdowns.end_ns(0, 7 * S, 10**15) == 7 * S + 3 * 10**15


def test_the_end_is_the_first_whole_nanosecond_at_which_the_work_is_done() -> None:
    slowdowns = Slowdowns([slow(1.5)])
    assert [slowdowns.end_ns(0, 0, work) for work in range(4)] == [0, 2, 3, 5]
    assert slowdowns.work(0, 0, 2) == Fraction(4, 3)


def test_it_is_for_clients_of_groups_and_never_for_the_server() -> None:
    slowdowns = Slowdowns([slow(4, np.array([False, True]))])
    assert [slowdowns.end_ns(client, 0, S) for client in (-1, 0, 1)] == [S, S, 4 * S]


def test_which_clients_are_slow_is_drawn_for_each_begin() -> None:
    slowdowns = Slowdowns([slow(2, at="1 s", every="1 s", probability=0.25, **{"for": "500 ms"})])
    found = [
        [slowdowns.work(client, at_s * S, (at_s + 1) * S) < S for at_s in range(1, 501)]
        for client in range(20)
    ]
    assert abs(np.mean(found) - 0.25) < 4 * (0.25 * 0.75 / 10_000) ** 0.5
    assert found[0] != found[1]
    # Where one begins to look makes no difference.
    at_s = 1 + found[3].index(True)
    assert slowdowns.end_ns(3, int((at_s + 0.1) * S), S // 10) == int((at_s + 0.3) * S)


TIMES = st.integers(0, 200)
FAULTS = st.lists(
    st.tuples(
        st.sampled_from([1.25, 2, 3]), st.integers(0, 60), st.integers(1, 9), st.none() | st.integers(10, 40)
    ),
    max_size=3,
)


@given(FAULTS, TIMES, TIMES, TIMES)
def test_work_that_is_interrupted_ends_as_if_it_went_on(
    faults: list[Any], began: int, until: int, work: int
) -> None:
    """Also compared with a device that works from tenth of a second to tenth."""
    tenth = S // 10
    slowdowns = Slowdowns(
        [
            slow(
                factor,
                at=f"{at * 100} ms",
                **{"for": f"{lasts * 100} ms"},
                **({} if every is None else {"every": f"{every * 100} ms"}),
            )
            for factor, at, lasts, every in faults
        ]
    )
    done, at = Fraction(0), began
    while done < work:
        factor = Fraction(1)
        for its, first, lasts, every in faults:
            since = at - first
            if since >= 0 and (since if every is None else since % every) < lasts:
                factor *= Fraction(its)
        done, at = done + 1 / factor, at + 1
    end = slowdowns.end_ns(0, began * tenth, work * tenth)
    assert (at - 1) * tenth < end <= at * tenth or end == began * tenth == at * tenth
    middle = min((began + until) * tenth, end)
    left = work * tenth - slowdowns.work(0, began * tenth, middle)
    assert slowdowns.end_ns(0, middle, left) == end


@given(st.integers(0, 40), st.integers(0, 40), st.just(0.0) | st.floats(0.001, 1))
def test_a_cohort_is_struck_as_its_clients_are(began: int, lasts: int, probability: float) -> None:
    others = np.array([True, False, True])
    slowdowns = Slowdowns([slow(2, others, probability=probability, **WINDOW), slow(3, at="30 s")])
    clients, began_ns = np.array([2, 0]), np.array([began * S, began * S])
    ended_ns = began_ns + np.array([lasts * S, lasts * S // 2])
    each = [
        slowdowns.work(*times) < times[2] - times[1]
        for times in zip(clients.tolist(), began_ns.tolist(), ended_ns.tolist(), strict=True)
    ]
    assert slowdowns.strike_any(clients, began_ns, ended_ns) == any(each)
