import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.network import max_min_tree
from fedsim.network.max_min_star import Flow, MaxMinStar
from fedsim.network.max_min_tree import MaxMinTree
from fedsim.rng import Key
from tests.network.progressive_filling import ProgressiveFilling

INF = math.inf
NONE = -1


@dataclass(frozen=True)
class Action:
    """What happens at an instant; of flows of the same number only the first begins."""

    at_s: float
    what: str  # "add", "remove", "cap", "cell" or "capacity"
    flow: int = 0
    value: float = 0.0
    cap: float = INF
    cell: int = NONE


class ByTree:
    def __init__(self, capacity: float, cells: list[float], num_flows: int) -> None:
        self.tree = MaxMinTree(capacity, cells)
        self.advance, self.next_end_s = self.tree.advance, self.tree.next_end_s
        self.flows: dict[int, Flow] = {}

    def act(self, action: Action) -> float | None:
        if action.what == "add":
            self.flows[action.flow] = Flow(action.flow, action.cell)
            self.tree.add(self.flows[action.flow], action.value, action.cap)
        elif action.what == "cap":
            self.tree.set_cap(self.flows[action.flow], action.cap)
        elif action.what == "capacity":
            self.tree.set_capacity(action.value)
        elif action.what == "cell":
            self.tree.set_cell_capacity(action.cell, action.value)
        else:
            return self.tree.remove(self.flows.pop(action.flow))
        return None

    def finished(self) -> list[int]:
        numbers = [flow.order for flow in self.tree.finished()]
        for number in numbers:
            del self.flows[number]
        return numbers

    def rates(self) -> dict[int, float]:
        return {number: self.tree.rate_bps(flow) for number, flow in self.flows.items()}

    def remaining(self) -> dict[int, float]:
        return {number: self.tree.remaining_bits(flow) for number, flow in self.flows.items()}


class ByFilling:
    """The same by progressive filling: link 0 is the server's, then come cells, then the flows' own."""

    def __init__(self, capacity: float, cells: list[float], num_flows: int) -> None:
        self.filling = ProgressiveFilling([capacity, *cells] + [0.0] * num_flows)
        self.first = 1 + len(cells)
        self.advance, self.next_end_s = self.filling.advance, self.filling.next_end_s
        self.finished, self.rates = self.filling.finished, self.filling.rates_bps

    def act(self, action: Action) -> float | None:
        own = self.first + action.flow
        if action.what in ("add", "cap"):
            self.filling.set_capacity(own, action.cap)
        if action.what == "add":
            route = [0, own] if action.cell == NONE else [0, 1 + action.cell, own]
            self.filling.add(action.flow, action.value, route)
        elif action.what == "capacity":
            self.filling.set_capacity(0, action.value)
        elif action.what == "cell":
            self.filling.set_capacity(1 + action.cell, action.value)
        elif action.what == "remove":
            return self.filling.remove(action.flow)
        return None

    def remaining(self) -> dict[int, float]:
        return {number: self.filling.remaining_bits(number) for number in self.filling.rates_bps()}


Life = tuple[dict[int, tuple[float, float]], list[dict[int, float]]]


def play(solver: ByTree | ByFilling, actions: list[Action]) -> Life:
    """Return when each flow ended, or left with what it had to go, and the rates after each action."""
    ends: dict[int, tuple[float, float]] = {}
    alive, rates = set[int](), list[dict[int, float]]()

    def pass_until(at_s: float) -> None:
        while (end_s := solver.next_end_s()) < at_s:
            solver.advance(end_s)
            note(end_s)
        if at_s < INF:
            solver.advance(at_s)
            note(at_s)

    def note(at_s: float) -> None:
        ended = solver.finished()
        ends.update((number, (at_s, 0.0)) for number in ended)
        alive.difference_update(ended)

    for action in actions:
        pass_until(action.at_s)
        if action.what == "add":
            alive.add(action.flow)
        elif action.what in ("remove", "cap") and action.flow not in alive:
            continue
        if (left := solver.act(action)) is not None:
            ends[action.flow] = action.at_s, left
            alive.remove(action.flow)
        rates.append(solver.rates())
        assert rates[-1].keys() == alive
    pass_until(INF)
    last_s = actions[-1].at_s
    return ends | {number: (last_s, left) for number, left in solver.remaining().items()}, rates


def compare(actions: list[Action], capacity: float, cells: list[float]) -> None:
    mine, my_rates = play(ByTree(capacity, cells, len(actions)), actions)
    reference, rates = play(ByFilling(capacity, cells, len(actions)), actions)
    assert mine.keys() == reference.keys()
    for number, (end_s, left) in reference.items():
        assert mine[number][0] == pytest.approx(end_s, rel=1e-9, abs=1e-9)
        assert mine[number][1] == pytest.approx(left, rel=1e-9, abs=1e-7)
    # Those of instants at which no end may come a moment sooner in one of both.
    for some, others in zip(my_rates, rates, strict=True):
        if some.keys() == others.keys():
            assert some == pytest.approx(others, rel=1e-9, abs=1e-12)


# By hand


def test_a_full_cell_leaves_the_rest_to_the_others() -> None:
    # Server 10; cells of 4 and 20 with two flows each, of which the last has a cap of 1.
    tree = MaxMinTree(10, [4, 20])
    flows = [Flow(0, 0), Flow(1, 0), Flow(2, 1), Flow(3, 1), Flow(4)]
    for flow, cap in zip(flows, (INF, INF, INF, 1, INF), strict=True):
        tree.add(flow, 5, cap)
    assert [tree.rate_bps(flow) for flow in flows] == [2, 2, 2.5, 1, 2.5]
    assert tree.next_end_s() == 2
    tree.advance(2)
    assert tree.finished() == [flows[2], flows[4]]
    assert [tree.rate_bps(flow) for flow in (flows[0], flows[1], flows[3])] == [2, 2, 1]
    tree.set_cell_capacity(0, 20)
    assert [tree.rate_bps(flow) for flow in (flows[0], flows[1], flows[3])] == [4.5, 4.5, 1]
    tree.set_capacity(2)
    assert tree.rate_bps(flows[3]) == pytest.approx(2 / 3, rel=1e-15)


def test_fairness_is_by_flow_and_not_by_cell() -> None:
    tree, flows = MaxMinTree(8, [100, 100]), [Flow(0, 0), Flow(1, 1), Flow(2, 1), Flow(3, 1)]
    for flow in flows:
        tree.add(flow, 1)
    assert [tree.rate_bps(flow) for flow in flows] == [2, 2, 2, 2]


def test_caps_that_are_too_much_together_are_found_wherever_they_are() -> None:
    # All are at their caps, and cells below their capacity, until one flow more comes.
    tree, flows = MaxMinTree(12, [5, 5]), [Flow(0, 0), Flow(1, 0), Flow(2, 1), Flow(3), Flow(4)]
    for flow, cap in zip(flows[:4], (1, 3, 4, 4), strict=True):
        tree.add(flow, 100, cap)
    assert [tree.rate_bps(flow) for flow in flows[:4]] == [1, 3, 4, 4]
    tree.add(flows[4], 100, 3.5)
    assert [tree.rate_bps(flow) for flow in flows] == [1, 2.75, 2.75, 2.75, 2.75]


# Against progressive filling

numbers = st.integers(1, 100).map(float) | st.floats(0.01, 100.0)
caps = numbers | st.sampled_from([0.0, 5.0, 5.0, INF])
gaps = st.just(0.0) | st.floats(0.0, 10.0) | st.integers(0, 5).map(float)
cells = st.lists(numbers | st.sampled_from([0.0, 5.0, 10.0]), min_size=1, max_size=4)


@st.composite
def scripts(draw: st.DrawFn, what: tuple[str, ...], num_cells: int) -> list[Action]:
    at_s, actions = 0.0, list[Action]()
    for _ in range(draw(st.integers(1, 25))):
        at_s += draw(gaps)
        kind = draw(st.sampled_from(what))
        flow = len(actions) if kind == "add" else draw(st.integers(0, len(actions)))
        cell = draw(st.integers(0 if kind == "cell" else NONE, num_cells - 1))
        zero_too = numbers | st.just(0.0)
        actions.append(Action(at_s, kind, flow, draw(zero_too), draw(caps), cell))
    return actions


@given(st.data(), numbers, cells)
def test_equal_to_progressive_filling(data: st.DataObject, capacity: float, cells: list[float]) -> None:
    what = ("add", "add", "add", "remove", "cap", "cell", "capacity")
    compare(data.draw(scripts(what, len(cells))), capacity, cells)


@given(st.data(), numbers, cells)
def test_equal_to_progressive_filling_when_all_start_at_once(
    data: st.DataObject, capacity: float, cells: list[float]
) -> None:
    flows = data.draw(
        st.lists(st.tuples(numbers, caps, st.integers(NONE, len(cells) - 1)), min_size=1, max_size=30)
    )
    compare([Action(0, "add", number, *flow) for number, flow in enumerate(flows)], capacity, cells)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("load", [0.5, 0.99, 2.0])
def test_equal_to_progressive_filling_over_a_busy_life(
    load: float, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few: with dozens of tidyings, and virtual work that begins anew hundreds of times.
    if few:
        monkeypatch.setattr(max_min_tree._Cell, "_few_moves", 4)
        monkeypatch.setattr(max_min_tree, "_FEW_ENTRIES", 0)
        monkeypatch.setattr(max_min_tree, "FAR_BITS", 20.0)
    generator, at_s, actions = Key.root(7).child(str(load)).numpy(), 0.0, list[Action]()
    for number in range(500):
        at_s += float(generator.exponential(0.1))
        size, cap = float(generator.exponential(10)), float(generator.lognormal(2, 1))
        cell = int(generator.integers(NONE, 6))
        if number % 16 == 7:
            actions.append(Action(at_s, "capacity", value=float(generator.uniform(50, 150)) / load))
        elif number % 16 == 3:
            some_bps = float(generator.uniform(5, 30)) / load
            actions.append(Action(at_s, "cell", value=some_bps, cell=max(cell, 0)))
        elif number % 16 == 15:
            actions.append(Action(at_s, "cap", number - 3, cap=cap))
        else:
            actions.append(Action(at_s, "add", number, size, cap, cell))
    compare(actions, 100 / load, [18 / load] * 6)


# The interface


def test_flows_without_cells_are_those_of_a_star() -> None:
    generator = Key.root(3).child("star").numpy()
    star, tree = MaxMinStar(100.0), MaxMinTree(100.0, [])
    for number in range(200):
        at_s = number / 10
        assert star.next_end_s() == pytest.approx(tree.next_end_s(), rel=1e-12)
        star.advance(at_s)
        tree.advance(at_s)
        assert [flow.order for flow in star.finished()] == [flow.order for flow in tree.finished()]
        size, cap = float(generator.exponential(20)), float(generator.lognormal(3, 1))
        star.add(Flow(number), size, cap)
        tree.add(Flow(number), size, cap)


def test_whoever_looks_at_flows_changes_nothing() -> None:
    seen, unseen = MaxMinTree(7.0, [3.0, 1.0]), MaxMinTree(7.0, [3.0, 1.0])
    flows = [[Flow(number, number % 3 - 1) for number in range(9)] for _ in range(2)]
    for tree, its in zip((seen, unseen), flows, strict=True):
        for number, flow in enumerate(its):
            tree.add(flow, 1 + number / 7, 0.9 + number / 3)
    for step in range(60):
        at_s = step / 7
        for tree in (seen, unseen):
            tree.advance(at_s)
            tree.finished()
        for flow in flows[0]:
            if flow._stamp:
                seen.rate_bps(flow), seen.remaining_bits(flow)
        assert seen.next_end_s() == unseen.next_end_s()
    assert seen.next_end_s() == INF


def test_an_idle_tree_restarts_its_clock() -> None:
    tree, flow = MaxMinTree(2.0, [1.0]), Flow(0, 0)
    tree.add(flow, 4.0)
    tree.advance(4.0)
    assert tree.finished() == [flow]
    tree.restart()
    tree.set_cell_capacity(0, 0.5)
    tree.add(flow, 1.0)
    assert (tree.now_s, tree.next_end_s()) == (0.0, 2.0)


def test_time_goes_forward() -> None:
    tree = MaxMinTree(1.0, [])
    tree.advance(1.0)
    with pytest.raises(ValueError, match="time goes forward"):
        tree.advance(0.5)
