from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsim.errors import Fault, ScenarioError
from fedsim.plugins import install_command
from fedsim.scenario import build, resolved_toml
from fedsim.scenario.schema import tables_of

Load = Callable[..., Any]
Faults = Callable[..., dict[str, Fault]]

SMALL = "run.rounds = 2\nfleet = [{ count = 4 }]\n"
NULL = "[engine]\nexecutor = 'null'\n"
TWO_MODELS = "[models.mlp]\n[models.linear]\n"


def test_more_clients_a_round_than_there_are(faults: Faults, load: Load) -> None:
    found = faults("[participation]\nclients_per_round = 5\n")
    assert str(found["participation.clients_per_round"]) == (
        "participation.clients_per_round: 5 clients a round, but the fleet has 4 — "
        "write 4 or fewer, or leave it out to ask all"
    )
    assert load("[participation]\nclients_per_round = 4\n").participation.clients_per_round == 4


def test_more_clients_than_a_run_can_have(faults: Faults) -> None:
    each = 6 * 10**6
    found = faults(text=f"run.rounds = 2\nfleet = [{{ count = {each} }}, {{ count = {each} }}]\n" + NULL)
    assert str(found["fleet"]) == (
        "fleet: 12000000 clients in all groups together — write counts that add up to 10000000 or fewer"
    )


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("training.batch_size = 9223372036854775808", "write a number of at most 1000000"),
        ("training.lr = 1e308", "write a number of at most 1e+06"),
        ("engine.workers = 100000", "write a number of at most 1024"),
        ("models.mlp.params.hidden = [2147483648]", "write a number of at most 1000000"),
        ("run.seed = 9223372036854775808", "write a number of at most 9223372036854775807"),
        ("data.split = [1.5, 0.0, 0.0]", "write a number of at most 1"),
    ],
)
def test_a_number_beyond_its_range(faults: Faults, value: str, rule: str) -> None:
    found = faults(text=f"run.rounds = 2\nfleet = [{{ count = 4 }}]\n{value}\n")
    assert any(rule in str(fault) for fault in found.values())


def test_a_label_that_no_model_has(faults: Faults) -> None:
    found = faults("model = 'linaer'\n" + TWO_MODELS + "[server]\nmodel = 'x'\n")
    assert str(found["fleet.0.model"]) == (
        "fleet.0.model: no model is labelled 'linaer' — did you mean 'linear'? there are: mlp, linear"
    )
    assert str(found["server.model"]) == "server.model: no model is labelled 'x' — there are: mlp, linear"


def test_several_models_and_a_group_that_names_none(faults: Faults) -> None:
    found = faults(TWO_MODELS)
    assert str(found["fleet.0"]) == (
        "fleet.0: it names no model, and there are 2: mlp, linear — add model = 'mlp' or another of them"
    )


def test_an_algorithm_for_one_architecture_over_two(faults: Faults) -> None:
    found = faults("model = 'mlp'\n[[fleet]]\ncount = 1\nmodel = 'linear'\n" + TWO_MODELS)
    assert set(found) == {"fleet.1.model"}
    assert "model 'linear' is not the first group's: fedavg needs the same model everywhere" in str(
        found["fleet.1.model"]
    )
    able = "write 'mlp', or choose an algorithm for mixed architectures: "
    assert found["fleet.1.model"].mend.startswith(able)
    named = found["fleet.1.model"].mend.removeprefix(able).split(", ")
    assert {"fedmd", "ktpfl", "local"} <= set(named)
    assert not {"fedavg", "ktpfl_w"} & set(named)


def test_a_server_of_another_architecture(faults: Faults) -> None:
    found = faults("model = 'mlp'\n" + TWO_MODELS + "[server]\nmodel = 'linear'\n")
    assert "model 'linear' is not the clients': fedavg needs the same model" in found["server.model"].problem


def test_mixed_architectures_where_they_belong(load: Load) -> None:
    scenario = load(
        "model = 'mlp'\n[[fleet]]\ncount = 1\nmodel = 'linear'\n[algorithm]\nname = 'local'\n" + TWO_MODELS
    )
    assert [group.model for group in scenario.fleet] == ["mlp", "linear"]
    assert scenario.server.model == "mlp"


def test_architectures_by_share_are_checked_where_they_stand(faults: Faults) -> None:
    found = faults("models = { mlp = 1, linaer = 1 }\n" + TWO_MODELS + "[algorithm]\nname = 'local'\n")
    assert set(found) == {"fleet.0.models.linaer"}
    found = faults("models_by_size = [{ mlp = 1 }, { linear = 2 }]\n" + TWO_MODELS)
    assert set(found) == {"fleet.0.models_by_size.1.linear"}
    assert "fedavg needs the same model everywhere" in found["fleet.0.models_by_size.1.linear"].problem


def test_an_algorithm_that_needs_a_public_set(faults: Faults) -> None:
    found = faults("[algorithm]\nname = 'fedmd'\n")
    assert str(found["data.public.size"]) == (
        "data.public.size: 0 samples, but fedmd exchanges knowledge on a public set — "
        "write size = 200, say, below [data.public]"
    )


@pytest.mark.parametrize(
    ("more", "path", "says"),
    [
        (
            "[data.public]\nsize = 5\nsource = 'sizes'\n",
            "data.public.source",
            "data set 'sizes' has sample counts only, so there is nothing to draw from — "
            "choose a data set with samples",
        ),
        (
            "[data.public]\nsize = 5\nsource = 'digits'\n",
            "data.public.source",
            "'digits' is the data set itself, whose samples clients train on — "
            "leave it out: the public set is then held out of it",
        ),
        (
            "[data]\nname = 'digits'\nparams.shape = 'image'\n"
            "[data.public]\nsize = 5\nsource = { name = 'digits', params = { shape = 'image' } }\n",
            "data.public.source",
            "'digits' is the data set itself",
        ),
        (
            "[data]\nname = 'sizes'\n[data.public]\nsize = 5\nsource = 'digits'\n" + NULL,
            "data.public.source",
            "data set 'sizes' has sample counts only, so its public set is a number too — leave it out",
        ),
        (
            "[data]\nname = 'sizes'\n[data.public]\nsize = 5\naugment = 'fedet'\n" + NULL,
            "data.public.augment",
            "'fedet' transforms images, and data set 'sizes' has sample counts only — leave it out",
        ),
    ],
)
def test_public_sets_that_cannot_be(faults: Faults, more: str, path: str, says: str) -> None:
    found = faults(more)
    assert list(found) == [path]
    assert str(found[path]).startswith(f"{path}: {says}")


def test_the_data_set_itself_by_another_name(faults: Faults) -> None:
    found = faults(
        "data = { name = 'digits', public = { size = 5, source = 'fedsim.data.digits' } }\n", text=SMALL
    )
    assert "'fedsim.data.digits' is the data set itself" in str(found["data.public.source"])


def test_the_same_data_set_with_other_parameters_is_another(load: Load) -> None:
    source = "size = 5\nsource = { name = 'writers', params = { num_writers = 3 } }\n"
    assert load(f"data.name = 'writers'\n[data.public]\n{source}", text=SMALL).data.public.source
    assert load(f"data.name = 'digits'\n[data.public]\n{source}", text=SMALL).data.public.source


@pytest.mark.parametrize(
    ("name", "own", "others", "more"),
    [
        ("digits", "", "shape = 'image'", ""),
        ("mnist", "", "users = 'u.npy'", ""),
        ("fashion_mnist", "user_key = 'x'", "", ""),
        ("emnist", "", "split = 'byclass'", ""),
        ("emnist", "split = 'letters', classes = 10", "split = 'letters'", ""),
        ("emnist", "classes = 10", "classes = ['A', 'B']", ""),
        ("shakespeare", "", "stride = 7, length = 3", "; or change its params.file"),
        ("texts", "file = 'a.csv'", "file = 'a.csv', length = 7", "; or change its params.file"),
        (
            "files",
            "images = 'a.npz', labels = 'a.npz'",
            "images = 'a.npz', labels = 'b.npz', layout = 'auto'",
            "; or change its params.images",
        ),
    ],
)
def test_the_clients_own_samples_given_otherwise(
    faults: Faults, name: str, own: str, others: str, more: str
) -> None:
    found = faults(
        f"data = {{ name = '{name}', params = {{ {own} }}, public = {{ size = 5, "
        f"source = {{ name = '{name}', params = {{ {others} }} }} }} }}\n",
        text=SMALL,
    )
    assert str(found["data.public.source"]) == (
        f"data.public.source: {name!r} is the data set itself, whose samples clients train on — "
        f"leave it out: the public set is then held out of it{more}"
    )


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [
        ("files", "images = 'a.npz', labels = 'a.npz'", "images = 'b.npz', labels = 'a.npz'"),
        ("shakespeare", "", "file = 'b.txt'"),
    ],
)
def test_other_samples_of_the_same_data_set(load: Load, name: str, own: str, others: str) -> None:
    assert load(
        f"data = {{ name = '{name}', params = {{ {own} }}, public = {{ size = 5, "
        f"source = {{ name = '{name}', params = {{ {others} }} }} }} }}\n",
        text=SMALL,
    ).data.public.source


@pytest.mark.parametrize("budget", ['simulated = "60 s"', 'bytes = "1 MB"', "accuracy = 0.5"])
def test_a_resolved_budget_can_be_read_again(load: Load, budget: str) -> None:
    scenario = load(overrides=[f"run.until={{ {budget} }}"])
    assert load(text=resolved_toml(scenario)) == scenario


def test_without_a_public_set_nothing_can_be_said_about_it(faults: Faults, load: Load) -> None:
    found = faults("[data.public]\nsource = 'writers'\naugment = 'fedet'\nheld = 'server'\n")
    assert list(found) == [f"data.public.{key}" for key in ("source", "augment", "held")]
    assert str(found["data.public.source"]) == (
        "data.public.source: data.public.size is 0, so source says nothing — "
        "write size = 200, say, or leave source out"
    )
    given = "[data.public]\nsize = 5\nheld = 'server'\n"
    assert list(faults(given, overrides=["data.public.size=0"])) == ["data.public.held"]
    scenario = load("[data.public]\naugment = 'none'\nheld = 'everywhere'\n")
    assert load(text=resolved_toml(scenario)) == scenario


def test_a_partition_may_be_its_name(faults: Faults, load: Load) -> None:
    scenario = load("[data]\npartition = 'two_class'\n")
    assert scenario == load("[data]\npartition.name = 'two_class'\n")
    assert load(text=resolved_toml(scenario)) == scenario
    assert load(overrides=["data.partition=by_user"]).data.partition.name == "by_user"
    assert (
        "no partition is called 'by_usr'"
        in faults("[data]\npartition = 'by_usr'\n")["data.partition"].problem
    )
    assert list(faults("[data]\npartition = 3\n")) == ["data.partition"]
    assert "data.partition" in faults("[data]\nname = 'sizes'\npartition = 'iid'\n")


@pytest.mark.parametrize("shares", ["models = {{ {0} }}", "models_by_size = [{{ {0} }}, {{ mlp = 1 }}]"])
def test_the_server_has_the_first_architecture_of_the_first_group(load: Load, shares: str) -> None:
    group = shares.format("linear = 1, mlp = 1")
    scenario = load(group + "\n" + TWO_MODELS + "[algorithm]\nname = 'local'\n")
    assert scenario.server.model == "linear"
    assert load(text=resolved_toml(scenario)) == scenario
    assert build(scenario).fleet.server_model == "linear"
    group = shares.format("linear = 1").replace("mlp = 1", "linear = 1")
    assert load(group + "\n" + TWO_MODELS).server.model == "linear"


def test_a_source_of_which_nothing_can_be_said(faults: Faults) -> None:
    missing = faults("[data.public]\nsize = 5\nsource = 'files'\n")
    assert all(path.startswith("data.public.source") for path in missing)
    assert not any(
        "public" in path
        for path in faults("[data]\nname = 'files'\n[data.public]\nsize = 5\nsource = 'digits'\n")
    )


def test_counts_cannot_be_learned_from(faults: Faults, load: Load) -> None:
    found = faults("[data]\nname = 'sizes'\n")
    assert str(found["engine.executor"]) == (
        "engine.executor: 'threads' trains, and data set 'sizes' has sample counts only — "
        'write executor = "null" below [engine], or choose a data set with samples'
    )
    scenario = load("[data]\nname = 'sizes'\n[engine]\nexecutor = 'null'\n")
    assert (scenario.data.partition, scenario.data.split) == (None, None)


@pytest.mark.parametrize(
    ("more", "path", "act"),
    [
        ("split = [0.5, 0.1, 0.4]", "data.split", "split"),
        ("limit = 3", "data.limit", "draw from"),
        ("partition.name = 'iid'", "data.partition", "spread"),
    ],
)
def test_counts_cannot_be_spread(faults: Faults, more: str, path: str, act: str) -> None:
    found = faults(f"[data]\nname = 'sizes'\n{more}\n[engine]\nexecutor = 'null'\n")
    assert str(found[path]) == (
        f"{path}: data set 'sizes' has sample counts only, so there is nothing to {act} — leave {path} out"
    )


@pytest.mark.parametrize("key", ["global_test", "global_test_users", "public.users"])
def test_counts_have_no_samples_and_no_users_to_hold_out(faults: Faults, key: str) -> None:
    found = faults(f"[data]\nname = 'sizes'\n{key} = 0.1\n[engine]\nexecutor = 'null'\n")
    assert list(found) == [f"data.{key}"]
    assert "data set 'sizes' has sample counts only — leave it out" in str(found[f"data.{key}"])


@pytest.mark.parametrize(
    ("more", "path", "says"),
    [
        (
            "global_test = 0.1\nglobal_test_users = 0.2",
            "data.global_test_users",
            "0.2 of the users, and global_test = 0.1 of the samples: it is one or the other — keep one of",
        ),
        (
            "public = { size = 5, users = 0.2 }",
            "data.public.users",
            "0.2 of the users, and size = 5 samples: the public set is one or the other — keep one of",
        ),
        (
            "public = { users = 0.2, source = 'digits' }",
            "data.public.source",
            "the public set is users of the data set itself, and its source is another one — leave it",
        ),
    ],
)
def test_whole_users_and_something_else(faults: Faults, more: str, path: str, says: str) -> None:
    found = faults(f"[data]\nname = 'writers'\n{more}\n")
    assert list(found) == [path]
    assert says in str(found[path])


def test_whole_users_are_a_public_set(load: Load) -> None:
    public = "[data]\nname = 'writers'\npublic = { users = 0.2, held = 'server', augment = 'fedet' }\n"
    assert load(public + "[algorithm]\nname = 'fedmd'\n").data.public.users == 0.2


def test_nothing_to_measure_on(faults: Faults, load: Load) -> None:
    no_test = "[data]\nsplit = [0.8, 0.2, 0]\n"
    found = faults(no_test)
    assert str(found["evaluation.split"]) == (
        "evaluation.split: 'test' has the share 0 in data.split = [0.8, 0.2, 0.0]: nothing to measure on — "
        "give it a share, choose the other split, or write every = 0 to measure nothing"
    )
    found = faults("[data]\nsplit = [[0.8, 0.2, 0], [0.5, 0.5, 0]]\n")
    assert "in data.split = [0.8, 0.2, 0.0], [0.5, 0.5, 0.0]: nothing" in str(found["evaluation.split"])
    load("[data]\nsplit = [[0.8, 0.2, 0], [0.5, 0.25, 0.25]]\n")
    load(no_test + "[evaluation]\nsplit = 'val'\n")
    load(no_test + "[evaluation]\nevery = 0\n")
    found = faults(no_test + "[evaluation]\nevery = 0\nat_start = true\n")
    assert "or write every = 0 and at_start = false to measure" in str(found["evaluation.split"])
    load(no_test + "[engine]\nexecutor = 'null'\n")


def test_cuda_where_there_is_none(faults: Faults, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = faults("[engine]\ndevice = 'cuda'\n")
    assert str(found["engine.device"]) == (
        "engine.device: 'cuda' is asked for, but torch finds no CUDA device on this computer — "
        "write 'cpu', or install a torch with CUDA and its driver"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert load("[engine]\ndevice = 'cuda'\n").engine.device == "cuda"


def test_portable_numbers_of_a_gpu(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = faults("[engine]\ndevice = 'cuda'\nnumerics = 'portable'\n")
    assert "engine.numerics = 'portable' is for kernels of x86-64 processors" in str(found["engine.device"])


def trace_of(folder: Path, *rates: float) -> str:
    path = folder / "link.csv"
    path.write_text("\n".join(["at_s,Mbps", *(f"{at_s},{rate}" for at_s, rate in enumerate(rates))]) + "\n")
    return str(path)


def test_links_follow_traces_where_the_network_model_does(
    load: Callable[..., Any], faults: Callable[..., dict[str, Fault]], tmp_path: Path
) -> None:
    trace = trace_of(tmp_path, 8, 0)
    entry = f"down_trace = '{trace}'\nup_trace = {{ file = '{trace}', shift = false }}\n"
    scenario = load(entry)
    assert (scenario.fleet[0].up, scenario.fleet[0].down) == (None, None)
    again = load(text=resolved_toml(scenario))
    assert again == scenario
    for model in ("naive", "none"):
        found = faults(entry, overrides=[f"network.model={model}"])
        assert list(found) == ["fleet.0.down_trace", "fleet.0.up_trace"]
        said = f"links follow no trace in network model {model!r}, where they are constant"
        assert found["fleet.0.up_trace"].problem == said
        assert "fluid" in found["fleet.0.up_trace"].mend


CELL = """
[[cell]]
name = "A"
up = "20 Mbit/s"
down_trace = "{trace}"
latency = "20 ms"
"""


def test_clients_share_cells_where_the_network_model_has_them(
    load: Callable[..., Any], faults: Callable[..., dict[str, Fault]], tmp_path: Path
) -> None:
    table = CELL.format(trace=trace_of(tmp_path, 8, 0))
    scenario = load(table)
    assert (scenario.cell[0].up, scenario.cell[0].latency, scenario.cell[0].share) == (20e6, 0.02, 1.0)
    assert load(text=resolved_toml(scenario)) == scenario
    assert "[[cell]]" in resolved_toml(scenario)
    assert "cell" not in tables_of(load())
    for model in ("naive", "none"):
        found = faults(table, overrides=[f"network.model={model}"])
        assert list(found) == ["cell", "cell.0.down_trace"]
        assert found["cell"].problem == f"in network model {model!r} clients share no links"
        assert "fluid" in found["cell"].mend


def test_traces_of_cells_are_read(faults: Callable[..., dict[str, Fault]]) -> None:
    found = faults(CELL.format(trace="none.csv"))
    assert "there is no none.csv: looked in " in found["cell.0.down_trace"].problem


@pytest.mark.parametrize(
    ("entry", "path", "problem"),
    [
        ("up_trace.file = 'none.csv'", "fleet.0.up_trace.file", "there is no none.csv: looked in "),
        ("up_trace = 'none.csv'", "fleet.0.up_trace", "there is no none.csv: looked in "),
        (
            "down_trace.file = 'zero.csv'",
            "fleet.0.down_trace.file",
            "zero.csv: the capacity is never above 0",
        ),
        (
            "down_trace.file = ['zero.csv']",
            "fleet.0.down_trace.file",
            "zero.csv: the capacity is never above 0",
        ),
        ("up_trace.file = 'bad.csv'", "fleet.0.up_trace.file", "bad.csv, line 3: 'x Mbps' is not a number"),
        (
            "up_trace = { file = 'link.csv', shfit = true }",
            "fleet.0.up_trace.shfit",
            "no key is called 'shfit'",
        ),
        ("up_trace = { shift = true }", "fleet.0.up_trace.file", "it is missing"),
        (
            "up_trace = { file = 'link.csv', name = 'a' }",
            "fleet.0.up_trace.file",
            "link.csv: 'name' picks a trace",
        ),
        ("up = '1 Mbit/s'\nup_trace = 'link.csv'", "fleet.0.up_trace", "a trace takes the place of 'up'"),
    ],
)
def test_a_trace_that_cannot_be_used(
    faults: Callable[..., dict[str, Fault]],
    entry: str,
    path: str,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    trace_of(tmp_path, 8, 0)
    (tmp_path / "zero.csv").write_text("at_s,Mbps\n0,0\n")
    (tmp_path / "bad.csv").write_text("at_s,Mbps\n0,1\n1,x\n")
    found = faults(entry + "\n")
    assert list(found) == [path]
    assert problem in found[path].problem


def test_a_fault_beside_a_link_s_files_hides_none_of_theirs(faults: Faults) -> None:
    found = faults("up_trace = { file = 'none.csv', shfit = true }\ndown_trace = 'gone.csv'\n")
    assert list(found) == ["fleet.0.up_trace.file", "fleet.0.up_trace.shfit", "fleet.0.down_trace"]
    found = faults("up_trace = 'none.csv'\n", overrides=["network.model=naive"])
    assert "there is no none.csv: looked in " in found["fleet.0.up_trace"].problem


PHONES = "speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms\n0.6,2,10,40,50\n6,8,26.4,34.4,20\n"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("count = 2\nfile = 'none.csv'", "there is no none.csv: looked in "),
        (
            "count = 2\nfile = 'speeds.csv'",
            "speeds.csv: no column gives the memory: add one of memory_bytes, memory_kb",
        ),
        (
            "count = 3\nfile = 'phones.csv'",
            "3 devices are wanted, and each of its 2 rows is one: write count = 2",
        ),
        ("count = 2\nfile = 'bad.csv'", "bad.csv, line 1, column 'uplink': there is no such column"),
    ],
)
def test_a_file_of_devices_that_cannot_be_used(
    faults: Faults, load: Load, entry: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phones.csv").write_text(PHONES)
    (tmp_path / "speeds.csv").write_text("speed_gflops\n1\n2\n")
    (tmp_path / "bad.csv").write_text("uplink\n1\n2\n")
    head = "run.rounds = 2\n"
    found = faults(text=f"{head}training.lr = -1\n[[fleet]]\n{entry}\n")
    assert list(found) == ["training.lr", "fleet.0.file"]
    assert problem in found["fleet.0.file"].problem
    good = load(text=f"{head}[[fleet]]\ncount = 2\nfile = 'phones.csv'\n")
    (tmp_path / "phones.csv").unlink()
    with pytest.raises(ScenarioError, match=r"fleet\.0\.file: there is no phones\.csv: looked in"):
        build(good)


def test_a_faulty_quantity_beside_a_file_of_devices_is_one_fault(faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "most.csv").write_text("speed_gflops,memory_gb,down_mbps\n1,1,1\n")
    keys = f"count = 1\nfile = '{tmp_path / 'most.csv'}'\nlatency = 20\nup_trace.shift = 1"
    found = faults(text=f"run.rounds = 2\n[[fleet]]\n{keys}\n")
    assert {path.rpartition(".")[2] for path in found} == {"latency", "shift", "file"}
    assert "fleet.0.file" not in found


def test_an_executor_whose_package_is_not_there_says_what_to_install(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.scenario.checks.is_installed", lambda package: False)
    found = faults("[engine]\nexecutor = 'ray'\n")
    assert str(found["engine.executor"]) == (
        "engine.executor: 'ray' needs the package ray, which is not installed — " + install_command("ray")
    )


def test_an_executor_elsewhere_may_have_the_cuda_device_that_is_not_here(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.scenario.checks.is_installed", lambda package: True)
    assert load("[engine]\nexecutor = 'ray'\ndevice = 'cuda'\n").engine.device == "cuda"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("address = 'ray://head:10001'", "fedsim has to run on a node of the cluster"),
        ("actors = 0", "actors"),
        ("workers = 2", "no key is called 'workers' here"),
        ("numeric = 'rough'", "numeric"),
    ],
)
def test_parameters_of_an_executor_are_checked_by_its_own_class(
    faults: Faults, params: str, said: str
) -> None:
    found = faults(f"[engine]\nexecutor = 'ray'\nparams.{params}\n")
    assert any(said in str(fault) for path, fault in found.items() if path.startswith("engine.params."))


def test_threads_have_no_parameters(faults: Faults) -> None:
    assert "engine.params.workers" in faults("[engine]\nparams.workers = 2\n")
