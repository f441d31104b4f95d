import numpy as np
import pytest

from fedsim.network import Links
from fedsim.network.cells import Cells
from fedsim.network.edges import Edges, address_of, edge_at
from fedsim.network.fluid import Fluid, FluidConfig

CELLS = Cells(
    ["A", "B", "C"], np.array([2, 0, -1, 1], np.int32), [1e6, 2e6, 3e6], [4e6, 5e6, 6e6], [0.0, 0.0, 0.1]
)
EDGES = Edges(CELLS, [2, 0], [1, 2], [1e8, 1e8], [1e8, 1e8], [0.03, 0.03])  # of cells C and A


@pytest.mark.parametrize("edge", [0, 1, 7])
def test_an_address_is_that_of_one_edge(edge: int) -> None:
    assert edge_at(address_of(edge)) == edge
    assert address_of(edge) < -1


def test_clients_of_a_cell_are_at_its_edge() -> None:
    assert EDGES.of().tolist() == [0, 1, -1, -1] == [EDGES.edge_of(client) for client in range(4)]
    assert EDGES.names == ["C", "A"]
    assert (EDGES.rates(up=True), EDGES.rates(up=False)) == ([3e6, 1e6], [6e6, 4e6])
    assert edge_at(-1) < 0
    assert edge_at(3) < 0


def test_cells_with_an_edge_are_no_part_of_the_way_to_the_server() -> None:
    shared = CELLS.shared(up=True, apart=EDGES.cell)
    assert shared is not None
    assert shared.of.tolist() == [-1, -1, -1, 1]
    assert shared.cell_of(address_of(0)) == -1


def test_alone_a_parcel_takes_the_way_to_the_edge() -> None:
    own = np.full(4, 2e6)
    links = Links(
        own, own, np.full(4, 0.2), 1e3, 1e3, 5.0, shared_up=CELLS.shared(up=True, apart=[2, 0]), edges=EDGES
    )
    fluid = Fluid(FluidConfig())
    assert fluid.alone_s(links, 1, -1, 1000) == pytest.approx(0.2 + 8000 / 1e6)  # the cell's capacity
    assert fluid.alone_s(links, -1, 0, 1000) == pytest.approx(0.2 + 8000 / 2e6)  # its own link's
    assert fluid.alone_s(links, 2, -1, 1000) == pytest.approx(5.2 + 8000 / 1e3)  # the server's
