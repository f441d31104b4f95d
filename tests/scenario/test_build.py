import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsim import portable_numerics
from fedsim.config import Config
from fedsim.data import SPLITS, LoadContext
from fedsim.data.synthetic_handwriting import Writers, WritersConfig
from fedsim.errors import ScenarioError, UserError
from fedsim.models.base import ModelPlugin, Net, named
from fedsim.plugins import path_of
from fedsim.portable_numerics import FreshProcessError
from fedsim.rng import Key
from fedsim.runtime.run import run
from fedsim.scenario import Scenario, build
from fedsim.scenario.build import num_workers, require_numerics, resources_elsewhere
from fedsim.scenario.schema import EngineConfig, resolved_toml
from fedsim.task import Task

Load = Callable[..., Any]


def test_every_part_is_as_the_file_says(load: Load) -> None:
    scenario = load(
        """
        [[fleet]]
        count = 2
        device = "high"
        name = "fast"
        [models.small]
        name = "mlp"
        params.hidden = [8]
        [algorithm]
        name = "fedprox"
        params.mu = 0.5
        [training]
        lr = 0.25
        [participation]
        clients_per_round = 3
        client_timeout = "2 min"
        [engine]
        workers = 2
        [evaluation]
        every = 5
        clients = 4
        split = "val"
        """,
        seed=11,
    )
    parts = build(scenario)
    assert (parts.rounds, parts.seed, parts.clients_per_round, parts.client_timeout_s) == (2, 11, 3, 120.0)
    assert parts.algorithm.config.mu == 0.5
    assert parts.training.lr == 0.25
    assert parts.executor.config.workers == 2
    assert (parts.evaluation.every, parts.evaluation.clients, parts.evaluation.split) == (5, 4, "val")
    assert len(parts.fleet) == parts.data.num_clients == 6
    assert [parts.fleet.device(client).label for client in (3, 4)] == ["mid", "fast"]
    assert {parts.fleet.model(client) for client in range(6)} == {parts.fleet.server_model} == {"small"}
    assert parts.architectures["small"].num_params == (64 + 1) * 8 + (8 + 1) * 10
    assert parts.data.sizes("train").sum() == pytest.approx(0.7 * 1797, abs=6)


def test_each_client_draws_a_split(load: Load) -> None:
    parts = build(
        load("[data]\nsplit = [[0.2, 0.4, 0.4], [0.8, 0.1, 0.1]]\n", overrides=["fleet.0.count=20"])
    )
    data = parts.data
    shares = data.sizes("train") / sum(data.sizes(split) for split in SPLITS)
    assert {round(float(share), 1) for share in shares} == {0.2, 0.8}


WRITERS = "[data]\nname = 'writers'\nparams = { num_writers = 10, samples_per_writer = 20, size = 8 }\n"


def test_whole_users_are_held_out(load: Load) -> None:
    parts = build(
        load(WRITERS + "partition = 'by_user'\nglobal_test_users = 0.2\n[data.public]\nusers = 0.25\n")
    )
    users = Writers(WritersConfig(num_writers=10, samples_per_writer=20, size=8)).load(
        LoadContext(None, 4, Key.root(0).child("data", "load"))
    )
    assert users.users is not None
    held = [parts.data.global_test, parts.data.public, *(parts.data.indices(k, "train") for k in range(4))]
    people = [set(users.users[part].tolist()) for part in held]
    assert [len(group) for group in people] == [2, 2, 1, 1, 1, 1]
    assert len(set.union(*people)) == 8


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("global_test_users = 0.2", "data.global_test_users"),
        ("public = { users = 0.2 }", "data.public.users"),
    ],
)
def test_whole_users_of_a_data_set_that_has_none(load: Load, more: str, path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build(load(f"[data]\n{more}\n"))
    assert [fault.path for fault in caught.value.faults] == [path]
    assert "does not say who made which sample" in str(caught.value)


def test_a_data_set_without_memory_for_it(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_digits(self: Any, context: Any) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("fedsim.data.digits.Digits.load", load_digits)
    with pytest.raises(ScenarioError) as caught:
        build(load())
    assert "data: data set 'digits' needs more memory than there is: Unable to allocate 7 TiB" in str(
        caught.value
    )
    source = "data.public = { size = 5, source = 'digits' }\ndata.name = 'writers'\n"
    with pytest.raises(ScenarioError, match=r"data\.public\.source: data set 'digits' needs more memory"):
        build(load(source, text="run.rounds = 2\nfleet = [{ count = 4 }]\n"))


def test_data_is_the_same_for_every_algorithm_and_depends_on_the_seed(load: Load) -> None:
    more = "[data.public]\nsize = 50\n[data.partition]\nname = 'dirichlet_class'\n"
    first, second = (build(load(more, algorithm=name)).data for name in ("fedavg", "fedmd"))
    other = build(load(more, seed=1)).data
    for client in range(4):
        np.testing.assert_array_equal(first.indices(client, "train"), second.indices(client, "train"))
    np.testing.assert_array_equal(first.public, second.public)
    assert not np.array_equal(first.public, other.public)


def npy(folder: Path, num: int = 30) -> str:
    """Write grey images of 12 by 12 with labels of 20 classes; return the choice of this data set."""
    np.save(folder / "x.npy", np.linspace(0, 255, num * 144).reshape(num, 12, 12).astype(np.uint8))
    np.save(folder / "y.npy", np.arange(num) % 20)
    return f"{{ name = 'files', params = {{ images = '{folder}/x.npy', labels = '{folder}/y.npy' }} }}"


def test_a_public_set_of_another_data_set(load: Load, tmp_path: Path) -> None:
    image = "[data]\nparams.shape = 'image'\n"
    public = f"[data.public]\nsize = 25\nheld = 'server'\naugment = 'fedet'\nsource = {npy(tmp_path)}\n"
    data = build(load(image + public)).data
    assert data.x.shape == (1797 + 25, 1, 8, 8)
    assert (data.public_labelled, data.public_at_clients) == (False, False)
    assert data.public.tolist() == list(range(1797, 1822))
    unchanged = build(load(image + public, overrides=["data.public.augment=none"])).data
    assert not np.array_equal(data.x[1797:], unchanged.x[1797:])


@pytest.mark.parametrize(
    ("more", "path", "problem"),
    [
        ("size = 31", "size", "31 public samples, but their source has 30: write 30 or fewer"),
        ("size = 3", "source", "the shape 1 x 12 x 12, but the task's have 64: only images"),
    ],
)
def test_a_public_set_that_cannot_be_drawn(
    load: Load, tmp_path: Path, more: str, path: str, problem: str
) -> None:
    shape = "image" if path == "size" else "flat"
    text = f"[data]\nparams.shape = '{shape}'\n[data.public]\nsource = {npy(tmp_path)}\n{more}\n"
    message = refused(load(text))
    assert f"  data.public.{path}: " in message
    assert problem in message


def test_flat_samples_are_not_transformed(load: Load) -> None:
    message = refused(load("[data.public]\nsize = 3\naugment = 'fedet'\n"))
    assert "  data.public.augment: only images with values in [0, 1] can be transformed" in message


def test_augmentations_that_the_data_does_not_suit(load: Load) -> None:
    message = refused(load("[data]\naugmentation = ['flip', 'cutout']\nparams.shape = 'image'\n"))
    assert "  data.augmentation: 'cutout': size = 8 covers whole images of 8 x 8 pixels: write 4" in message


def test_augmentations_come_in_the_order_of_the_file(load: Load) -> None:
    crop = "{ name = 'crop', params = { padding = 2 } }"
    parts = build(load(f"[data]\nparams.shape = 'image'\naugmentation = ['flip', {crop}]\n"))
    flip, moved = parts.data.augmentations
    assert (type(flip).__name__, type(moved).__name__, moved.config.padding) == ("Flip", "Crop", 2)


def test_a_source_whose_files_are_not_there(load: Load, tmp_path: Path) -> None:
    files = "{ name = 'files', params = { images = 'a.npy', labels = 'b.npy' } }"
    message = refused(load(f"[data]\nroot = '{tmp_path}'\n[data.public]\nsize = 3\nsource = {files}\n"))
    assert "study: 1 fault" in message
    assert "data.public.source.params.images: there is no a.npy: looked in " in message


def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert num_workers(EngineConfig(workers=3)) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)
    assert num_workers(EngineConfig()) == 5
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert num_workers(EngineConfig()) == 8


def refused(scenario: Scenario) -> str:
    with pytest.raises(ScenarioError) as caught:
        build(scenario)
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ("limit = 3\n", "data.limit"),
        ("global_test = 0.999\n", "data.global_test"),
        ("limit = 10\nglobal_test = 0.3\npublic.size = 4\n", "data.public.size"),
    ],
)
def test_the_setting_that_leaves_too_few_samples_is_named(load: Load, settings: str, path: str) -> None:
    assert f"  {path}: of " in refused(load(f"[data]\n{settings}"))


def test_more_clients_than_samples(load: Load) -> None:
    assert "  fleet: of 1797 samples, 0 are" in refused(load(overrides=["fleet.0.count=1800"]))


def test_a_file_is_named_as_it_was_given(load: Load) -> None:
    scenario = load("[data]\nlimit = 3\n")
    with pytest.raises(ScenarioError) as caught:
        build(scenario, "some/where.toml")
    assert str(caught.value).startswith("some/where.toml: 1 fault\n")


def test_all_faults_at_once(load: Load) -> None:
    scenario = load(
        "availability = { name = 'trace', params = { file = 'none.csv' } }\nmodel = 'mlp'\n"
        "[data]\nlimit = 3\n[models.mlp]\n[models.eye]\nname = 'lenet'\n[models.'x.y']\nname = 'lenet'\n"
    )
    with pytest.raises(ScenarioError) as caught:
        build(scenario)
    assert [fault.path for fault in caught.value.faults] == [
        "data.limit",
        "models.eye",
        'models."x.y"',
        "fleet.0.availability.params",
    ]


def test_a_partition_that_cannot_be(load: Load) -> None:
    message = refused(load("[data.partition]\nname = 'dirichlet_class'\nparams.min_size = 1000\n"))
    assert "  data.partition: 1797 samples cannot give at least 1000 to each of 4 clients" in message


def test_no_root(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSIM_DATA", raising=False)
    message = refused(load("[data]\nname = 'mnist'\n"))
    assert "  data.root: MNIST is read from MNIST/raw" in message
    assert "give data.root in the scenario, or set FEDSIM_DATA" in message


def test_files_that_are_not_there(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = "[data]\nname = 'files'\nparams = { images = 'a.npy', labels = 'b.npy' }\n"
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path / "environment"))
    monkeypatch.chdir(tmp_path)
    missing = f"data.params.images: there is no a.npy: looked in {tmp_path} and {tmp_path}"
    assert f"{missing}/environment" in refused(load(files))
    assert f"{missing}/here" in refused(load(files + "root = 'here'\n"))


def test_a_model_that_cannot_take_the_task(load: Load) -> None:
    message = refused(load("[models.eye]\nname = 'lenet'\n"))
    assert "  models.eye: model 'lenet' cannot take samples of shape (64,)" in message


def test_a_model_that_no_message_could_hold(load: Load) -> None:
    message = refused(load("[models.mlp]\nparams = { hidden = [1000000, 1000000] }\n"))
    # 64 inputs and 10 outputs: 65e6 + (1e12 + 1e6) + (1e7 + 10) parameters.
    assert "  models.mlp: model 'mlp' has 1000076000010 parameters" in message
    assert "but a message holds at most 500000000: make its layers narrower" in message


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.empty(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class ResetScale(Scale):
    def reset_parameters(self) -> None:
        nn.init.uniform_(self.factor, 0.5, 1.5)


class Bare(ModelPlugin[Config]):
    layer: type[Scale] = Scale

    def build(self, task: Task) -> Net:
        return Net(named(scale=self.layer()), nn.Linear(64, task.num_outputs))


class Filled(Bare):
    """The same with a layer as PyTorch's are: start values come from ``reset_parameters`` alone."""

    layer = ResetScale


def test_a_private_layer_without_start_values_is_a_fault_of_the_scenario(load: Load) -> None:
    message = refused(load(f"[models.own]\nname = '{path_of(Bare)}'\n"))
    assert "study: 1 fault" in message
    assert (
        "  models.own: model 'own': layer 'body.scale', a Scale, has no reset_parameters: give it" in message
    )
    assert "a method initialise(self, generator) that fills its parameters and buffers in place" in message


def test_a_private_layer_with_reset_parameters_trains(load: Load) -> None:
    more = f"[models.own]\nname = '{path_of(Filled)}'\n"
    parts = build(load(more, overrides=["data.limit=200", "training.lr=0.1"]))
    start = parts.initial()("own").params["body.scale.factor"]
    assert 0.5 <= start.min() < start.max() <= 1.5
    result = run(parts)
    assert result.non_finite is None
    end = result.models[0]["global"].params["body.scale.factor"]
    assert 0 < np.abs(end - start).max() < 0.5


class Root(Scale):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs().sqrt() + self.factor

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.ones_(self.factor)


class Rooted(Bare):
    """The same with a layer whose bits may be others on another processor."""

    layer = Root


def test_portable_numbers_are_for_processes_and_models_that_can_give_them(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise FreshProcessError("this process is not portable")

    own = f"[models.own]\nname = '{path_of(Rooted)}'\n"
    build(load(own))
    scenario = load(own, overrides=["engine.numerics=portable"])
    monkeypatch.setattr(portable_numerics, "require", refuse)
    for make in (build, lambda scenario: resources_elsewhere(resolved_toml(scenario))):
        with pytest.raises(FreshProcessError):
            make(scenario)
    monkeypatch.setattr(portable_numerics, "require", lambda: None)
    assert "  models.own: its operations sqrt may have other bits on another processor" in refused(scenario)
    parts = build(load(overrides=["engine.numerics=portable"]))
    assert parts.numerics == "portable"
    assert parts.resources().portable


def test_a_process_has_one_kind_of_numbers(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    native, portable = EngineConfig(), EngineConfig(numerics="portable")
    monkeypatch.setattr(portable_numerics, "require", lambda: None)
    require_numerics([portable, portable])
    with pytest.raises(UserError, match="give each kind a study or comparison of its own"):
        require_numerics([native, portable])
    monkeypatch.setenv(portable_numerics.REQUEST, "1")
    with pytest.raises(UserError, match="is 'native': write 'portable', or start another"):
        build(load())


def test_data_that_cannot_be_spread_for_want_of_memory(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: Any, **__: Any) -> None:
        raise MemoryError("80 TB")

    # The package offers the function under the name of its module.
    monkeypatch.setattr(import_module("fedsim.scenario.build"), "federate", too_much)
    assert "more memory than there is: 80 TB" in refused(load(""))


def test_a_group_in_which_nobody_has_a_sample(load: Load) -> None:
    scenario = load(
        "[[fleet]]\ncount = 3\n[data]\nname = 'sizes'\nparams.samples = 0\n[engine]\nexecutor = 'null'\n"
    )
    message = refused(scenario)
    assert "  fleet.0: no client of this group (0 to 3) has a training sample — use fewer clients" in message
    assert "  fleet.1: no client of this group (4 to 6) has a training sample" in message


def test_what_the_algorithm_refuses_comes_with_what_else_is_wrong(load: Load) -> None:
    small = "[[fleet]]\ncount = 4\nmemory = '1 kB'\n[models.linear]\n"
    more = """
        [data]
        name = "synthetic_regression"
        public.size = 20
        [training]
        steps = 2
        [algorithm]
        name = "ktpfl"
        params.ramp_epochs = true
        """
    message = refused(load(more, text="[run]\nrounds = 2\n" + small))
    assert "study: 3 faults" in message
    assert "  algorithm: it learns from probabilities of classes, and the task is a regression" in message
    said = "  algorithm.params.ramp_epochs: it counts passes, and training.steps = 2 counts mini-batches"
    assert f"{said} — give training.epochs instead" in message
    assert "  fleet: no client that has training samples can hold its job" in message


def test_a_fleet_in_which_nobody_has_the_memory_to_train(load: Load) -> None:
    small = "[[fleet]]\ncount = 2\nmemory = '{}'\n"
    text = "[run]\nrounds = 1\n[models.linear]\n" + small
    message = refused(load(text=text.format("10 kB")))
    assert (
        "  fleet: no client that has training samples can hold its job: training 'linear' with batches of 32 "
        "needs 14.9 kB, the largest device has 10 kB; take a smaller model or batch" in message
    )
    # One group that can suffices.
    parts = build(load(text=text.format("10 kB"), more=small.format("15 kB")))
    assert parts.eligible().tolist() == [2, 3]


def test_a_scenario_that_was_put_together_by_hand_is_checked_too() -> None:
    tables = {"run": {"rounds": 1}, "fleet": [{"count": 2}], "participation": {"clients_per_round": 3}}
    assert "3 clients a round, but the fleet has 2" in refused(Scenario.model_validate(tables))
    del tables["participation"]
    assert build(Scenario.model_validate(tables)).fleet.server_model == "mlp"


def test_links_that_follow_traces_run(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text("at_s,kbps\n0,400\n2,0\n5,100\n")
    entry = f"up_trace = '{path}'\ndown_trace = {{ file = '{path}', shift = false }}\n"
    counts = "[data]\nname = 'sizes'\nparams.samples = 50\n[engine]\nexecutor = 'null'\n"
    parts = build(load(entry + counts))
    mean_bps = (400e3 * 2 + 100e3 * 3) / 8
    assert parts.fleet.values("up").tolist() == [mean_bps] * 4
    results = [run(replace(parts, verify=verify)) for verify in (False, True)]
    assert results[0].trace_hash == results[1].trace_hash
    constant = run(build(load(f"up = '{mean_bps} bit/s'\ndown = '{mean_bps} bit/s'\n" + counts)))
    assert results[0].simulated_s != constant.simulated_s
    assert results[0].totals == constant.totals


COUNTS = "[data]\nname = 'sizes'\nparams.samples = 50\n[engine]\nexecutor = 'null'\n"
CELLS = "[[fleet]]\nname = 'far'\ncount = 5\n[[cell]]\nname = 'A'\n"


def test_cells_run_on_the_fast_path_and_checked(load: Load) -> None:
    unlimited, limited, slow = (
        [run(replace(build(load(COUNTS + CELLS + more)), verify=verify)) for verify in (False, True)]
        for more in ("", "groups = ['far']\nup = '100 kbit/s'\n", "groups = ['far']\nlatency = '1 s'\n")
    )
    without = run(build(load(COUNTS + CELLS.replace("[[cell]]\nname = 'A'\n", ""))))
    assert unlimited[0].trace_hash == unlimited[1].trace_hash == without.trace_hash
    for one, checked in (limited, slow):
        assert one.trace_hash == checked.trace_hash
        assert one.simulated_s > without.simulated_s
        assert one.totals == without.totals
    assert slow[0].simulated_s == pytest.approx(without.simulated_s + 4.0, abs=0.5)  # two rounds, both ways


def test_what_is_wrong_with_cells_comes_with_what_else_is_wrong(load: Load) -> None:
    more = "[algorithm]\nname = 'fedprox'\n" + COUNTS + CELLS + "[[cell]]\nname = 'A'\ngroups = ['nowhere']\n"
    with pytest.raises(ScenarioError) as caught:
        build(load(more + "[[cell]]\nname = 'B'\ngroups = ['far']\n"))
    assert [fault.path for fault in caught.value.faults] == ["cell.1.name", "cell.1.groups", "cell.2.groups"]


def test_the_members_of_cells_depend_on_the_seed_alone(load: Load) -> None:
    cells = "[[fleet]]\ncount = 30\n[[cell]]\nname = 'A'\nshare = 0.5\n[[cell]]\nname = 'B'\nshare = 0.25\n"
    drawn = [build(load(COUNTS + cells, seed=seed)).cells for seed in (0, 0, 1)]
    of = [one.of.tolist() for one in drawn if one is not None]
    assert of[0] == of[1] != of[2]
    assert np.bincount(np.array(of[0]) + 1).tolist() == [8, 17, 9]
