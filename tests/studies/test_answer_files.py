from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import OutputError
from fedsim.scenario import load_each
from fedsim.studies.answer_files import FILES, read_folder, write_answers
from fedsim.studies.comparison_plans import plan_of
from fedsim.studies.perform import perform
from fedsim.studies.plan import load_study


@pytest.mark.usefixtures("in_process")
def test_a_study_is_read_from_its_folder(tiny: dict[str, Any], tmp_path: Path) -> None:
    perform(load_study(tiny), tmp_path)
    found = read_folder(tmp_path)
    assert [(one.setting.variant, one.target, one.seeds) for one in found.answers] == [
        ("fedavg", 0.05, 2),
        ("fedavg", 0.999, 2),
        ("local", 0.05, 2),
        ("local", 0.999, 2),
    ]
    for setting in found.plan.settings:
        assert found.ends[setting]["simulated_s"] == pytest.approx(
            sum(found.curves[setting][seed]["simulated_s"][-1] for seed in (0, 1)) / 2
        )


def test_so_is_a_comparison_with_its_targets(tiny: dict[str, Any], tmp_path: Path) -> None:
    algorithms = ["fedavg", "local"]
    fedsim.compare(tiny["base"], algorithms, seeds=[0, 1], out=tmp_path)
    for file in FILES:
        (tmp_path / file).unlink(missing_ok=True)  # as a process that was killed leaves it
    found = read_folder(tmp_path)
    assert [(one.setting.variant, one.target, one.seeds) for one in found.answers] == [
        ("fedavg", None, 2),
        ("local", None, 2),
    ]
    plan = plan_of(load_each(tiny["base"], (), algorithms, [0, 1]), [0.05, 0.999])
    write_answers(plan, tmp_path)
    again = read_folder(tmp_path)
    assert [(one.setting.variant, one.target) for one in again.answers] == [
        ("fedavg", 0.05),
        ("fedavg", 0.999),
        ("local", 0.05),
        ("local", 0.999),
    ]


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds neither a study"):
        read_folder(tmp_path)
