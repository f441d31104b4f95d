from typing import Any

from fedsim.studies.plan import load_study
from fedsim.studies.variant_params import params_facts, params_table, plan_remarks


def test_parameters_side_by_side(tiny: dict[str, Any]) -> None:
    variants = [{"algorithm": "fedprox"}, {"algorithm": "fedavg"}, {"algorithm": "local"}]
    grid = {"fleet.0.count": [2, 3]}
    tuned = {"seeds": [9], "algorithm.params.mu": [0.5, 2.0]}
    plan = load_study(tiny | {"variant": variants[:1], "grid": grid, "tune": tuned, "baseline": "fedprox"})
    mu = next(row for row in params_table(plan).rows if row[0] == "mu")
    assert mu == ("mu", "0.5 or 2.0")
    grid_of_all = params_table(load_study(tiny | {"variant": variants}))
    assert grid_of_all.headings == ("parameter", "fedprox", "fedavg", "local")
    rows = {name: values for name, *values in grid_of_all.rows}
    assert rows["weighting"][:2] == ['"samples"', '"samples"']
    assert rows["mu"][1:] == ["-", "-"]


def test_parameters_in_a_line(tiny: dict[str, Any]) -> None:
    tiny["variant"] = [{"name": "plain", "algorithm": "fedavg", "params": {"weighting": "uniform"}}]
    assert params_facts(load_study(tiny | {"baseline": "plain"})) == [
        ("parameters of plain", 'weighting = "uniform"')
    ]


def test_a_variant_that_lacks_the_parameters_of_its_parent(tiny: dict[str, Any]) -> None:
    tiny["variant"] = [
        {"name": "mean", "algorithm": "fedavg", "params": {"weighting": "uniform"}},
        {"name": "near", "algorithm": "fedprox"},
    ]
    (remark,) = plan_remarks(load_study(tiny | {"baseline": "mean"}))
    assert remark.startswith(
        'near has weighting = "samples" (mean: "uniform"): fedprox is a subclass of fedavg'
    )
