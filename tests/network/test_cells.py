from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from fedsim.network.capacity_trace import Capacity
from fedsim.network.cell_settings import CellConfig
from fedsim.network.cells import Cells, members
from fedsim.rng import Key

KEY = Key.root(0)
INF = float("inf")


class Town:
    """Clients 0 to 9 in two groups; no client has the label old."""

    names = ("phones", "boxes", "old")

    def __len__(self) -> int:
        return 10

    def clients_of(self, groups: Collection[str]) -> NDArray[np.bool_] | None:
        if not groups:
            return None
        its: Any = np.array(["phones"] * 6 + ["boxes"] * 4)
        return np.isin(its, list(groups))


def cell(name: str, **settings: Any) -> CellConfig:
    return CellConfig.model_validate({"name": name, **settings})


def drawn(*cells: CellConfig) -> list[int]:
    of, faults = members(cells, Town(), KEY)
    assert not faults
    return list(of)


def said(*cells: CellConfig) -> list[str]:
    _, faults = members(cells, Town(), KEY)
    return [f"{fault.path}: {fault.problem}" for fault in faults]


def test_members_are_clients_of_groups() -> None:
    assert drawn(cell("A", groups=["boxes"])) == [-1] * 6 + [0] * 4
    assert drawn(cell("A", groups=["boxes"]), cell("B", groups=["phones"])) == [1] * 6 + [0] * 4
    assert drawn(cell("A")) == [0] * 10


@pytest.mark.parametrize(
    ("shares", "counts"),
    [((0.5,), [5]), ((0.5, 0.5), [5, 5]), ((1 / 3, 1 / 3, 1 / 3), [4, 3, 3]), ((0.1,) * 10, [1] * 10)],
)
def test_cells_of_the_same_groups_share_them(shares: Sequence[float], counts: list[int]) -> None:
    of = drawn(*(cell(str(number), share=share) for number, share in enumerate(shares)))
    assert np.bincount([number for number in of if number >= 0]).tolist() == counts


def test_who_has_a_share_is_drawn() -> None:
    cells = (
        cell("A", groups=["phones", "boxes"], share=0.5),
        cell("B", groups=["boxes", "phones"], share=0.3),
    )
    first, other = (members(cells, Town(), Key.root(seed))[0].tolist() for seed in (0, 1))
    assert first != other
    assert sorted(first) == sorted(other) == [-1] * 2 + [0] * 5 + [1] * 3


def test_what_is_wrong_with_members_comes_at_once() -> None:
    assert said(
        cell("A", groups=["phonse"]),
        cell("A", groups=["old"]),
        cell("B", groups=["phones"], share=0.05),
        cell("C", groups=["boxes"], share=0.6),
        cell("D", groups=["boxes"], share=0.6),
    ) == [
        "cell.0.groups: no client is of a group or label 'phonse'",
        "cell.1.name: two cells are called 'A'",
        "cell.1.share: it has no client: its share of 0 clients comes to none",
        "cell.2.share: it has no client: its share of 6 clients comes to none",
        "cell.4.share: shares of cells of the same clients add up to 1.2, and a client is in one cell",
    ]


def test_a_client_is_in_one_cell() -> None:
    problem = "client 6 is in cell 'A' already, and a client is in one cell"
    assert said(cell("A", groups=["boxes"]), cell("B")) == [f"cell.1.groups: {problem}"]


def test_a_rate_is_a_constant_or_a_trace() -> None:
    with pytest.raises(ValidationError, match="a trace takes the place of 'up', which is given too"):
        cell("A", up="1 Mbit/s", up_trace="a.csv")
    with pytest.raises(ValidationError, match="'0 Mbit/s' is zero"):
        cell("A", down="0 Mbit/s")


def test_capacities_and_latencies(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("at_s,bps\n0,1000\n1,3000\n")
    configs = [
        cell("A", groups=["phones"], up="2 Mbit/s", latency="20 ms"),
        cell("B", groups=["boxes"], down_trace={"file": str(file), "shift": False}),
    ]
    cells = Cells.draw(configs, members(configs, Town(), KEY)[0], KEY)
    assert cells.latencies_s().tolist() == [0.02] * 6 + [0.0] * 4
    assert cells.labels().tolist() == ["A"] * 6 + ["B"] * 4
    up, down = cells.shared(up=True), cells.shared(up=False)
    assert up is not None
    assert up.of.tolist() == [0] * 6 + [-1] * 4  # B has no limit in this direction
    assert (up.mean_bps(0), up.mean_bps(9)) == (2e6, INF)
    assert down is not None
    assert down.of.tolist() == [-1] * 6 + [1] * 4
    assert (down.mean_bps(0), down.mean_bps(9)) == (INF, 2000.0)
    assert isinstance(down.rates[1], Capacity)
    assert down.rates[1].rate_at(0) == 1000.0
    assert cells.is_traced
    constant = cells.without_traces()
    assert not constant.is_traced
    assert constant.down == [INF, 2000.0]


def test_without_limits_there_are_no_links() -> None:
    configs = [cell("A", latency="1 ms")]
    cells = Cells.draw(configs, members(configs, Town(), KEY)[0], KEY)
    assert cells.shared(up=True) is None
    assert cells.shared(up=False) is None
