import math
from dataclasses import dataclass
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.network.max_min_star import Flow, MaxMinStar, noise_s
from fedsim.rng import Key
from tests.network.progressive_filling import ProgressiveFilling, max_min_bps

INF = math.inf


@dataclass(frozen=True)
class Action:
    """What happens at an instant; of flows of the same number only the first begins."""

    at_s: float
    what: str  # "add", "remove", "cap" or "capacity"
    flow: int = 0
    value: float = 0.0
    cap: float = INF


class Solver(Protocol):
    def act(self, action: Action) -> float | None: ...
    def advance(self, at_s: float) -> None: ...
    def next_end_s(self) -> float: ...
    def finished(self) -> list[int]: ...
    def rates(self) -> dict[int, float]: ...
    def remaining(self) -> dict[int, float]: ...


class ByStar:
    def __init__(self, capacity: float) -> None:
        self.star = MaxMinStar(capacity)
        self.advance, self.next_end_s = self.star.advance, self.star.next_end_s
        self.flows: dict[int, Flow] = {}

    def act(self, action: Action) -> float | None:
        if action.what == "add":
            self.flows[action.flow] = Flow(action.flow)
            self.star.add(self.flows[action.flow], action.value, action.cap)
        elif action.what == "cap":
            self.star.set_cap(self.flows[action.flow], action.cap)
        elif action.what == "capacity":
            self.star.set_capacity(action.value)
        else:
            return self.star.remove(self.flows.pop(action.flow))
        return None

    def finished(self) -> list[int]:
        numbers = [flow.order for flow in self.star.finished()]
        for number in numbers:
            del self.flows[number]
        return numbers

    def rates(self) -> dict[int, float]:
        return {number: self.star.rate_bps(flow) for number, flow in self.flows.items()}

    def remaining(self) -> dict[int, float]:
        return {number: self.star.remaining_bits(flow) for number, flow in self.flows.items()}


class ByFilling:
    """The same by progressive filling: link 0 is shared, link n + 1 is flow n's own."""

    def __init__(self, capacity: float, num_flows: int) -> None:
        self.filling = ProgressiveFilling([capacity] + [0.0] * num_flows)
        self.advance, self.next_end_s = self.filling.advance, self.filling.next_end_s
        self.finished, self.rates = self.filling.finished, self.filling.rates_bps

    def act(self, action: Action) -> float | None:
        if action.what == "add":
            self.filling.set_capacity(action.flow + 1, action.cap)
            self.filling.add(action.flow, action.value, [0, action.flow + 1])
        elif action.what == "cap":
            self.filling.set_capacity(action.flow + 1, action.cap)
        elif action.what == "capacity":
            self.filling.set_capacity(0, action.value)
        else:
            return self.filling.remove(action.flow)
        return None

    def remaining(self) -> dict[int, float]:
        return {number: self.filling.remaining_bits(number) for number in self.filling.rates_bps()}


End = tuple[float, float]


def play(solver: Solver, actions: list[Action], capacity: float) -> dict[int, End]:
    """Return for each flow when it came to its end, or was removed, and what it had to go then."""
    ends: dict[int, End] = {}
    begun, alive, caps = set[int](), set[int](), dict[int, float]()
    values = [capacity, *(max(action.value, action.cap) for action in actions)]
    tiny = 1e-13 * max(value for value in values if value < INF)

    def pass_until(at_s: float) -> None:
        while (end_s := solver.next_end_s()) <= at_s and end_s < INF:
            check_rates()
            solver.advance(end_s)
            for number in solver.finished():
                ends[number] = (end_s, 0.0)
                alive.remove(number)
        if at_s < INF:
            check_rates()
            solver.advance(at_s)
            for number in solver.finished():
                ends[number] = (at_s, 0.0)
                alive.remove(number)

    def check_rates() -> None:
        rates = solver.rates()
        assert rates.keys() == alive
        total = math.fsum(rates.values())
        assert total <= capacity + tiny
        assert all(0 <= rate <= caps[number] * (1 + 1e-12) for number, rate in rates.items())
        # Work conservation: who is below its cap is so because the link is full.
        if any(rate < caps[number] * (1 - 1e-12) for number, rate in rates.items()):
            assert total >= capacity - tiny

    for action in actions:
        pass_until(action.at_s)
        if action.what == "capacity":
            capacity = action.value
        elif action.what == "add":
            if action.flow in begun:
                continue
            begun.add(action.flow)
            alive.add(action.flow)
        elif action.flow not in alive:
            continue
        if action.what in ("add", "cap"):
            caps[action.flow] = action.cap
        left = solver.act(action)
        if left is not None:
            ends[action.flow] = (action.at_s, left)
            alive.remove(action.flow)
    pass_until(INF)
    last_s = actions[-1].at_s
    return ends | {number: (last_s, left) for number, left in solver.remaining().items()}


def ends_s(capacity: float, *flows: tuple[float, float, float]) -> list[float]:
    """Return when flows, given as start, size and cap, end on a link."""
    actions = [Action(start, "add", number, size, cap) for number, (start, size, cap) in enumerate(flows)]
    ends = play(ByStar(capacity), sorted(actions, key=lambda action: action.at_s), capacity)
    return [ends[number][0] for number in range(len(flows))]


def exactly(*values: float) -> object:
    return pytest.approx(values, rel=1e-12)


# Closed forms


@pytest.mark.parametrize("num_flows", [1, 2, 7, 1000])
def test_equal_flows_end_together_when_the_link_has_moved_them_all(num_flows: int) -> None:
    assert ends_s(8.0, *[(0, 3.0, INF)] * num_flows) == exactly(*[num_flows * 3 / 8] * num_flows)


def test_caps_leave_the_rest_to_the_others() -> None:
    # The first keeps its 1; 9 are left for two, 4.5 each until 1.0; then 5 each for what is left, 4.5.
    assert ends_s(10.0, (0, 1, 1), (0, 9, 20), (0, 9, 20)) == exactly(1.0, 1.9, 1.9)


def test_caps_that_all_start_at_once_and_are_too_much_together() -> None:
    # Nobody shares before the first solving, and the caps exceed the link: 100 flows with 0.1 each.
    assert ends_s(10.0, *[(0, 1, 5)] * 100) == exactly(*[10.0] * 100)


def test_the_capacity_steps() -> None:
    actions = [Action(0, "add", 0, 10), Action(1, "capacity", value=0), Action(3, "capacity", value=3)]
    assert play(ByStar(4), actions, 4) == {0: exactly(5, 0)}


def test_a_cap_changes_on_the_way() -> None:
    actions = [Action(0, "add", 0, 10, 1), Action(2, "cap", 0, cap=0), Action(4, "cap", 0, cap=INF)]
    assert play(ByStar(4), actions, 4) == {0: exactly(6, 0)}


def test_removing_a_flow_frees_its_share_and_tells_what_is_left() -> None:
    actions = [Action(0, "add", 0, 10), Action(0, "add", 1, 10), Action(2, "remove", 0)]
    assert play(ByStar(4), actions, 4) == {0: exactly(2, 6), 1: exactly(3.5, 0)}


# Against progressive filling


def test_the_reference_divides_links_as_by_hand() -> None:
    # Link A of 10 has flows 1 and 2, link B of 4 has 2 and 3: B is full first, at 2 each; 8 are left of A.
    assert max_min_bps([10, 4], [[0], [0, 1], [1]]) == [8, 2, 2]
    # Server 10; edges of 4 and 20 with two clients each, the last of which has a slow link of 1.
    routes = [[0, 1], [0, 1], [0, 2], [0, 2, 3]]
    assert max_min_bps([10, 4, 20, 1], routes) == [2, 2, 5, 1]
    assert max_min_bps([0.0, 5.0], [[], [0, 1], [1]]) == [math.inf, 0, 5]


numbers = st.integers(1, 100).map(float) | st.floats(0.01, 100.0)
caps = numbers | st.sampled_from([0.0, 5.0, 5.0, INF])
gaps = st.just(0.0) | st.floats(0.0, 10.0) | st.integers(0, 5).map(float)


@st.composite
def scripts(draw: st.DrawFn, what: tuple[str, ...]) -> list[Action]:
    at_s, actions = 0.0, list[Action]()
    for _ in range(draw(st.integers(1, 25))):
        at_s += draw(gaps)
        kind = draw(st.sampled_from(what))
        flow = len(actions) if kind == "add" else draw(st.integers(0, len(actions)))
        zero_too = numbers | st.just(0.0)
        actions.append(Action(at_s, kind, flow, draw(zero_too), draw(caps)))
    return actions


def compare(actions: list[Action], capacity: float) -> None:
    mine = play(ByStar(capacity), actions, capacity)
    reference = play(ByFilling(capacity, len(actions)), actions, capacity)
    assert mine.keys() == reference.keys()
    for number, (end_s, left) in reference.items():
        assert mine[number][0] == pytest.approx(end_s, rel=1e-9, abs=1e-9)
        assert mine[number][1] == pytest.approx(left, rel=1e-9, abs=1e-7)


@given(scripts(("add", "add", "add", "remove", "cap", "capacity")), numbers)
def test_equal_to_progressive_filling(actions: list[Action], capacity: float) -> None:
    compare(actions, capacity)


@given(st.lists(st.tuples(numbers, caps), min_size=1, max_size=30), numbers)
def test_equal_to_progressive_filling_when_all_start_at_once(
    flows: list[tuple[float, float]], capacity: float
) -> None:
    compare([Action(0, "add", number, *flow) for number, flow in enumerate(flows)], capacity)


@pytest.mark.parametrize("load", [0.5, 0.99, 2.0])
def test_equal_to_progressive_filling_over_a_busy_life(load: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # With dozens of tidyings; every eighth action is a step of the capacity or of a cap.
    monkeypatch.setattr(MaxMinStar, "_few_moves", 4)
    generator, at_s, actions = Key.root(7).child(str(load)).numpy(), 0.0, list[Action]()
    for number in range(400):
        at_s += float(generator.exponential(0.1))
        size, cap, any_flow = float(generator.exponential(10)), float(generator.lognormal(2, 1)), number - 3
        if number % 16 == 7:
            actions.append(Action(at_s, "capacity", value=float(generator.uniform(50, 150)) / load))
        elif number % 16 == 15:
            actions.append(Action(at_s, "cap", any_flow, cap=cap))
        else:
            actions.append(Action(at_s, "add", number, size, cap))
    compare(actions, 100 / load)


def test_equal_caps_that_just_fill_the_link_do_not_go_round_in_circles() -> None:
    third = 1 / 3
    assert ends_s(1.0, *[(0, 1, third)] * 3, (1, 1, third)) == exactly(
        1 + 4 * (2 / 3), 1 + 4 * (2 / 3), 1 + 4 * (2 / 3), 1 + 4 * (2 / 3) + 3 * third
    )


# The interface


def test_flows_that_end_together_come_in_their_order() -> None:
    star = MaxMinStar(1.0)
    for order in (3, 1, 2):
        star.add(Flow(order), 1.0, cap_bps=[INF, 0.1, 0.2, 0.05][order])
    star.advance(100.0)
    assert [flow.order for flow in star.finished()] == [1, 2, 3]
    assert len(star) == 0


def test_a_flow_without_bits_has_ended_even_where_nothing_moves() -> None:
    star = MaxMinStar(0.0)
    stuck, empty, capped = Flow(1), Flow(2), Flow(3)
    star.add(stuck, 1.0)
    star.add(empty, 0.0)
    star.add(capped, 0.0, cap_bps=0.0)
    assert star.next_end_s() == 0.0
    assert star.finished() == [empty, capped]
    assert star.next_end_s() == INF


def test_an_idle_star_restarts_its_clock() -> None:
    star, flow = MaxMinStar(2.0), Flow(0)
    star.add(flow, 4.0)
    star.advance(2.0)
    assert star.finished() == [flow]
    star.restart()
    star.add(flow, 1.0)
    assert (star.now_s, star.next_end_s()) == (0.0, 0.5)


def test_stale_entries_do_not_pile_up() -> None:
    star, flows = MaxMinStar(10.0), [Flow(order) for order in range(10)]
    for order, flow in enumerate(flows):
        star.add(flow, 1e9, cap_bps=1.0 + order / 10)
    for step in range(20_000):
        star.set_cap(flows[step % 10], 1.0 + step % 7)
        star.set_capacity(10.0 + step % 5)
        star.advance(float(step))
    heaps = (star._largest, star._smallest, star._ends, star._targets)
    assert sum(map(len, heaps)) < 10_000
    assert star._virtual_bits < 1e5  # counted afresh now and then, so that it loses no digits


def test_noise_is_far_below_a_nanosecond_for_days() -> None:
    assert noise_s(0.0) == 1e-12
    assert noise_s(86_400.0) < 1e-10


def test_time_goes_forward() -> None:
    star = MaxMinStar(1.0)
    star.advance(1.0)
    with pytest.raises(ValueError, match="time goes forward"):
        star.advance(0.5)


def test_a_small_flow_behind_a_large_one_keeps_its_digits() -> None:
    # 1e16 bits each, at which the next float is 2 bits off, and then three share 1 kbit/s.
    star = MaxMinStar(2e15)
    giants, small = (Flow(0), Flow(1)), Flow(2)
    for giant in giants:
        star.add(giant, 2e16)
    star.advance(10.0)
    star.set_capacity(1e3)
    star.add(small, 9.0)
    assert star.remaining_bits(giants[0]) == 1e16
    star.advance(10.025)
    star.rate_bps(small)
    assert star.remaining_bits(small) == pytest.approx(9 - 25 / 3, abs=0.01)
