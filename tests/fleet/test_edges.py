import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.fleet.edges import EdgeConfig, build_edges, misplaced
from fedsim.network.cells import Cells
from fedsim.rng import Key

CELLS = Cells(["A", "B"], np.array([0, 1], np.int32), [1e6] * 2, [1e6] * 2, [0.0] * 2)


def test_an_edge_has_the_links_of_its_device_class_unless_it_has_its_own() -> None:
    config = EdgeConfig.model_validate({"cell": "B", "device": "edge_gpu", "up": "2 Mbit/s"})
    edges = build_edges([config], CELLS, Key.root(0))
    assert (edges.cell, edges.rounds, edges.names) == ([1], [1], ["B"])
    assert (edges.up_bps, edges.down_bps, edges.latency_s) == ([2e6], [1e9], [0.005])
    explicit = config.explicit()
    assert str(explicit.down) == str(EdgeConfig.model_validate({"cell": "B", "down": "1 Gbit/s"}).down)


def test_draws_depend_on_the_cell_and_not_on_other_edges() -> None:
    a, b = (EdgeConfig.model_validate({"cell": name, "device": "mid"}) for name in "AB")
    both, alone = build_edges([a, b], CELLS, Key.root(0)), build_edges([b], CELLS, Key.root(0))
    assert both.up_bps[1] == alone.up_bps[0]
    assert both.up_bps[0] != both.up_bps[1]


def test_a_cell_that_there_is_not_and_a_second_edge_are_faults() -> None:
    configs = [EdgeConfig(cell=name) for name in ("office", "offcie", "office")]
    unknown, second = misplaced(configs, ["office", "home"])
    assert (unknown.path, unknown.problem) == ("edge.1.cell", "no cell is called 'offcie'")
    assert "'office'" in unknown.mend
    assert (second.path, second.problem) == ("edge.2.cell", "cell 'office' has another edge")
    (lonely,) = misplaced(configs[:1], [])
    assert lonely.mend == "add a [[cell]] of this name"


def test_a_file_of_devices_is_no_edge() -> None:
    with pytest.raises(ValidationError, match="device class 'table' is for groups"):
        EdgeConfig(cell="A", device="table")
