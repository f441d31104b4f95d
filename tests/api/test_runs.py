import asyncio
import inspect
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim import toml_writer
from fedsim.algorithms.fedavg import FedAvg
from fedsim.errors import OutputError, ScenarioError, UserError
from fedsim.report.unfinished_runs import read_state
from fedsim.runtime.records.result import RoundRow


class FedAvgOfMine(FedAvg):
    """Defined here, as in a notebook."""


def test_public_names() -> None:
    assert set(fedsim.__all__) <= set(dir(fedsim))
    for name in fedsim.__all__:
        assert getattr(fedsim, name) is not None
    functions = ("load", "run", "arun", "compare", "study", "track", "open")
    for name in (*functions, "Result", "Comparison", "Scenario"):
        assert inspect.getdoc(getattr(fedsim, name)), name
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        fedsim.runs  # noqa: B018


def test_importing_fedsim_imports_nothing_heavy() -> None:
    code = "import sys, fedsim; print(sorted({'torch', 'numpy', 'pyarrow', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"


def test_a_dictionary_and_a_file_give_the_same_run(tiny: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(toml_writer.document(tiny))
    hashes = {
        fedsim.run(source).summary["model_hash"] for source in (tiny, file, str(file), fedsim.load(tiny))
    }
    assert len(hashes) == 1


def test_a_run_that_diverges_has_a_result_and_is_logged(
    tiny: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert fedsim.run(tiny).divergence is None
    assert caplog.messages == []
    # Each step takes weights times 999: after five they are some 1e14, and after ten beyond 1.8e19.
    settings = {"lr": 1000, "weight_decay": 1, "steps": 5}
    diverging = tiny | {"models": {"linear": {}}, "training": settings, "run": {"name": "tiny", "rounds": 3}}
    result = fedsim.run(diverging)
    assert result.divergence == "6 of 9 replies rejected as not finite: is training.lr = 1000 too high?"
    assert caplog.messages == [f"tiny fedavg-seed0: {result.divergence}"]
    assert str(result.divergence) in repr(result)


def test_a_run_that_merges_nothing_has_a_result_and_is_logged(
    tiny: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    pacing = {"name": "synchronous", "params": {"deadline": "1 ms"}}
    result = fedsim.run(tiny, overrides={"participation.pacing": pacing})
    assert result.divergence is None
    assert caplog.messages == [
        "tiny fedavg-seed0: no reply was ever merged: none came in time (6: round failed)"
    ]


def test_overrides_algorithm_and_seed_replace_what_the_source_says(tiny: dict[str, Any]) -> None:
    scenario = fedsim.load(
        tiny, {"run.rounds": 3, "algorithm.params.mu": 0.5, "fleet.0.count": 2}, algorithm="fedprox", seed=7
    )
    assert (scenario.run.rounds, scenario.run.seed, scenario.num_clients) == (3, 7, 2)
    assert scenario.algorithm.name == "fedprox"
    assert tiny["run"] == {"name": "tiny", "rounds": 2}
    again = fedsim.load(scenario, {"run.rounds": 4})
    assert (again.run.rounds, again.algorithm.params.mu) == (4, 0.5)  # type: ignore[attr-defined]


def test_a_table_as_override_replaces_the_whole_table(tiny: dict[str, Any]) -> None:
    defaults = fedsim.load({**tiny, "training": {}}).training
    for overrides in ({"training": {"lr": 0.3}}, ["training={lr=0.3}"]):
        training = fedsim.load(tiny, overrides).training
        assert (training.lr, training.batch_size) == (0.3, defaults.batch_size)
    training = fedsim.load(tiny, {"training.lr": 0.3}).training
    assert (training.lr, training.batch_size) == (0.3, tiny["training"]["batch_size"])
    assert defaults.batch_size != tiny["training"]["batch_size"]


def test_errors_name_no_switches_of_the_command_line(tiny: dict[str, Any], tmp_path: Path) -> None:
    fedsim.run(tiny, out=tmp_path / "there")
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    mistakes: list[Callable[[], object]] = [
        lambda: fedsim.run(tiny, seed=1, out=tmp_path / "there"),
        lambda: fedsim.run(tiny, out=tmp_path / "other", force=True),
        lambda: fedsim.run(tiny, out=tmp_path / "file"),
        lambda: fedsim.run(tiny, out=tmp_path / "file" / "below"),
        lambda: fedsim.compare(tiny, ["local"], out=tmp_path / "file"),
        lambda: fedsim.open(tmp_path / "other"),
        lambda: fedsim.load(tiny, ["training.lr"]),
        lambda: fedsim.load(tiny, ["=1"]),
        lambda: fedsim.load(tiny, ["a b=1"]),
        lambda: fedsim.load(tiny, {"fleet.7.count": 1, "training.lr.x": 1, "a b": 1}),
        lambda: fedsim.load(tiny, {"algorithm.name": "fedavg"}, algorithm="local"),
    ]
    for mistake in mistakes:
        with pytest.raises(UserError) as caught:
            mistake()
        assert "--" not in str(caught.value)

    with pytest.raises(OutputError, match="replace it with the option force, or choose another place"):
        fedsim.run(tiny, seed=1, out=tmp_path / "there")


def test_an_unknown_example_names_those_that_there_are() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'quickstart'"):
        fedsim.load("quikstart")


def test_an_example_by_its_name() -> None:
    assert fedsim.load("quickstart").run.name == "quickstart"
    assert fedsim.load("fleet_files").num_clients > 6


def test_plugins_may_be_classes(tiny: dict[str, Any]) -> None:
    by_name = fedsim.run(tiny, algorithm="fedavg").summary
    by_class = fedsim.run(tiny, algorithm=FedAvg).summary
    own = fedsim.run({**tiny, "algorithm": {"name": FedAvgOfMine}}).summary
    assert by_class["algorithm"] == "fedavg"
    assert own["algorithm"].endswith("test_runs.FedAvgOfMine")
    assert by_name["model_hash"] == by_class["model_hash"] == own["model_hash"]


def test_a_class_that_no_path_leads_to_is_told(tiny: dict[str, Any]) -> None:
    class Hidden(FedAvg):
        pass

    with pytest.raises(ScenarioError, match="top of a module"):
        fedsim.load(tiny, algorithm=Hidden)


async def test_inside_a_loop_as_in_jupyter(tiny: dict[str, Any]) -> None:
    expected = (await asyncio.to_thread(fedsim.run, tiny)).summary["model_hash"]
    assert fedsim.run(tiny).summary["model_hash"] == expected
    assert (await fedsim.arun(tiny)).summary["model_hash"] == expected
    assert len(fedsim.compare(tiny, ["local"])) == 1


async def test_a_run_that_is_cancelled_can_be_resumed(tiny: dict[str, Any], tmp_path: Path) -> None:
    began, loop = asyncio.Event(), asyncio.get_running_loop()

    def progress(row: RoundRow) -> None:
        loop.call_soon_threadsafe(began.set)

    task = asyncio.create_task(
        fedsim.arun(tiny, overrides={"run.rounds": 100_000}, out=tmp_path / "there", progress=progress)
    )
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    state = await asyncio.to_thread(read_state, tmp_path / "there")
    assert state["status"] == "interrupted"


def test_a_run_is_extended_and_forked(tiny: dict[str, Any], tmp_path: Path) -> None:
    whole = fedsim.run(tiny, overrides={"run.rounds": 3}).summary["model_hash"]
    fedsim.run(tiny, out=tmp_path / "one")
    extended = fedsim.extend(tmp_path / "one", rounds=3)
    assert extended.summary["model_hash"] == whole
    at_s = extended.summary["simulated_s"] * 0.9
    forked = fedsim.fork(tmp_path / "one", at=f"{at_s} s", overrides={"training.lr": 0.5})
    assert forked.folder == tmp_path / "one-fork"
    assert forked.summary["model_hash"] != whole


def test_torch_may_be_set_otherwise_by_the_caller(tiny: dict[str, Any]) -> None:
    expected = fedsim.run(tiny).summary["model_hash"]
    with torch.inference_mode():
        assert fedsim.run(tiny).summary["model_hash"] == expected
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(UserError, match=r"set it back to torch\.float32"):
            fedsim.run(tiny)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_plugin_of_a_single_file_is_not_mistaken_for_one_of_fedsims(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("fedprox")
    module.__dict__["Mine"] = module.__dict__["PLUGIN"] = mine = type(
        "Mine", (FedAvg,), {"__module__": "fedprox"}
    )
    monkeypatch.setitem(sys.modules, "fedprox", module)
    assert fedsim.load(tiny, algorithm=mine).algorithm.name == "fedprox.Mine"


def test_numbers_of_numpy_are_numbers(tiny: dict[str, Any]) -> None:
    seed: Any = np.int64(5)
    scenario = fedsim.load(tiny, {"training.lr": np.float64(0.25), "run.rounds": np.int64(3)}, seed=seed)
    assert (scenario.training.lr, scenario.run.rounds, scenario.run.seed) == (0.25, 3, 5)
