import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import toml_writer
from fedsim.algorithms.fedmd import FedMDConfig
from fedsim.algorithms.fedprox import FedProxConfig
from fedsim.errors import Fault, ScenarioError
from fedsim.fleet.distributions import Fixed
from fedsim.quoting import quoted
from fedsim.scenario import load_scenario, resolved_toml, tracked
from fedsim.scenario.load import Override, apply_override, load_tracker, parse_override

Load = Callable[..., Any]
Faults = Callable[..., dict[str, Fault]]


def test_two_keys_make_a_scenario(load: Load) -> None:
    scenario = load()
    assert scenario.run.name == "study"
    assert (scenario.run.rounds, scenario.run.seed, scenario.num_clients) == (2, 0, 4)
    assert scenario.data.name == "digits"
    assert scenario.data.split == (0.7, 0.1, 0.2)
    assert scenario.data.partition.name == "iid"
    assert list(scenario.models) == ["mlp"]
    assert scenario.models["mlp"].params.hidden == (128, 128)
    assert scenario.algorithm.name == "fedavg"
    assert scenario.participation.client_timeout == 3600
    assert scenario.participation.selector.name == "uniform"
    assert scenario.fleet[0].model == scenario.server.model == "mlp"


def test_a_group_carries_the_quantities_of_its_device_class(load: Load) -> None:
    scenario = load('up = "5 Mbit/s"\n')
    assert scenario.fleet[0].up == Fixed(5e6)
    assert scenario.fleet[0].memory == Fixed(4e9)
    assert scenario.fleet[0].name == "mid"


def test_a_file_name_becomes_a_name_that_can_be_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "my study (2).toml"
    path.write_text("[run]\nrounds = 1\n[[fleet]]\ncount = 1\n")
    assert load_scenario(path).run.name == "my-study-2-"


def test_seed_is_replaced(load: Load) -> None:
    assert load(text="[run]\nrounds = 1\nseed = 3\n[[fleet]]\ncount = 1\n", seed=7).run.seed == 7


def test_a_missing_file() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario("no/such.toml")
    assert str(caught.value) == (
        "no/such.toml: 1 fault\n  the file cannot be read: no such file or directory — "
        "give the path of a .toml file"
    )


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"the file cannot be read: is a directory — give the path"):
        load_scenario(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.touch(0o000)
    with pytest.raises(ScenarioError, match="the file cannot be read: permission denied"):
        load_scenario(path)


def test_a_file_that_is_not_toml_names_line_and_column_and_shows_the_line(faults: Faults) -> None:
    found = faults(text="[run]\nrounds = ten\n")
    assert "not TOML: Invalid value (at line 2, column 10)" in found[""].problem
    assert found[""].mend == "mend this line: rounds = ten"


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"ab\xff")
    with pytest.raises(ScenarioError, match=r"not text in UTF-8 \(byte 2\) — save it as UTF-8"):
        load_scenario(path)


def test_what_is_required(faults: Faults) -> None:
    found = faults(text="")
    assert set(found) == {"run.rounds", "fleet"}
    assert str(found["run.rounds"]) == (
        "run.rounds: it is missing, and has no default (How many rounds to run; not needed where `until` "
        "ends the run) — add rounds = 100, say"
    )
    assert str(found["fleet"]) == (
        "fleet: it is missing, and a run needs clients — add a table [[fleet]] with count = 10, say"
    )


def test_an_empty_fleet(faults: Faults) -> None:
    found = faults(text="fleet = []\n[run]\nrounds = 1\n")
    assert str(found["fleet"]) == "fleet: the list holds 0, which is too few — give at least 1"


def test_a_group_without_count(faults: Faults) -> None:
    found = faults('[[fleet]]\ndevice = "high"\n')
    assert str(found["fleet.1.count"]) == (
        "fleet.1.count: it is missing, and has no default (Number of clients) — add count = ..."
    )


@pytest.mark.parametrize(
    ("more", "path", "nearest"),
    [
        ("[trainings]\n", "trainings", "training"),
        ("[training]\noptimizer = 'sgd'\n", "training.optimizer", "optimiser"),
        ("[algorithm]\nname = 'fedprox'\nparams = { muu = 1 }\n", "algorithm.params.muu", "mu"),
        ("[models.net]\nname = 'mlp'\nparams.hiden = [3]\n", "models.net.params.hiden", "hidden"),
        ("[models.mlp]\nparams.hiden = [3]\n", "models.mlp.params.hiden", "hidden"),
        ("[data.partition]\nname = 'two_class'\nparams.spred = 0\n", "data.partition.params.spred", "spread"),
        (
            "speed = { distribution = 'lognormal', median = '1 GFLOP/s', sigma = 0, sigmo = 1 }",
            "fleet.0.speed.sigmo",
            "sigma",
        ),
        ("[algorithms.fedprox]\nmuu = 1\n", "algorithms.fedprox.muu", "mu"),
        (
            "[data]\nname = 'sizes'\n"
            "params.samples = { distribution = 'uniform', low = 1, high = 2, hig = 3 }\n"
            "[engine]\nexecutor = 'null'\n",
            "data.params.samples.hig",
            "high",
        ),
    ],
)
def test_an_unknown_key_names_the_nearest(faults: Faults, more: str, path: str, nearest: str) -> None:
    found = faults(more)
    assert list(found) == [path]
    assert found[path].problem == f"no key is called {path.rpartition('.')[2]!r} here"
    assert found[path].mend.startswith(f"did you mean {nearest!r}? there are: ")


def test_a_plugin_that_takes_nothing(faults: Faults) -> None:
    found = faults("[models.linear]\nparams.bias = true\n")
    assert str(found["models.linear.params.bias"]) == (
        "models.linear.params.bias: no key is called 'bias' here — leave it out: nothing can be set here"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[training]\nepochs = '3'", 'training.epochs: "3" is a text, a whole number is wanted — write 3'),
        ("[training]\nlr = '0.1'", 'training.lr: "0.1" is a text, a number is wanted — write 0.1'),
        ("[training]\nepochs = 1.5", "training.epochs: 1.5 is not whole, a whole number is wanted — write 2"),
        (
            "[training]\nepochs = true",
            "training.epochs: true is a truth value, a whole number is wanted — write a whole number",
        ),
        ("[data]\nname = 5", 'data.name: 5 is a whole number, a text is wanted — write "5"'),
        (
            "[data.partition]\nname = 'dirichlet_class'\nparams.cap = 1",
            "data.partition.params.cap: 1 is a whole number, true or false is wanted — write true or false",
        ),
        (
            "[models.mlp]\nparams.hidden = 64",
            "params.hidden: 64 is a whole number, a list in square brackets is wanted — write [64]",
        ),
        (
            "[models.mlp]\nparams.hidden = [64, 'a']",
            'models.mlp.params.hidden.1: "a" is a text, a whole number is wanted — write a whole number',
        ),
        (
            "[algorithm]\nparams = 3",
            "algorithm.params: 3 is a whole number, a table is wanted — "
            "write [algorithm.params] on a line of its own, and the keys below it",
        ),
        (
            "[participation]\npacing = 3",
            "participation.pacing: 3 is neither a name nor a table of name and params — write a name",
        ),
        ("[training]\nlr = inf", "training.lr: inf is not finite — write a finite number"),
        ("[evaluation]\nevery = 2024-01-01", "every: 2024-01-01 is a date or time, a whole number is wanted"),
        (
            "[data]\nsplit = [0.5, 0.5]",
            "data.split: the list ends before its entry 2 — give at least 3 entries",
        ),
        (
            "[data]\nsplit = [[0.7, 0.1, 0.2], 0.5]",
            "data.split.1: 0.5 is a number, a list in square brackets is wanted — write [0.5]",
        ),
        ("[data]\nroot = ''", "data.root: the text is empty — write something between the quotation marks"),
        ("[training]\nlr = 0", "training.lr: 0 is not above 0 — write a number above 0"),
        ("[training]\nmomentum = 1.0", "training.momentum: 1.0 is not below 1 — write a number below 1"),
        ("[evaluation]\nevery = -1", "evaluation.every: -1 is below 0 — write a number of at least 0"),
        (
            "[algorithm]\nname = 'fedprox'\nparams.gamma = 2",
            "algorithm.params.gamma: 2 is above 1 — write a number of at most 1",
        ),
        (
            "[training]\noptimiser = 'adamm'",
            "optimiser: \"adamm\" is not 'sgd' or 'adam' — did you mean 'adam'? write 'sgd' or 'adam'",
        ),
        (
            "[engine]\nworkers = 0",
            "workers: 0 is below 1, and 0 is not 'auto' — write a number of at least 1, or write 'auto'",
        ),
        (
            "[data]\nsplit = [0.7, 0.1, 0.3]",
            "data.split: shares of train, val and test must sum to 1, but 0.7, 0.1, 0.3 sum to 1.1 — "
            "write for example [0.7, 0.1, 0.2]",
        ),
        ("up = 5", "fleet.0.up: 5 has no unit; a bit rate is wanted, for example '20 Mbit/s'"),
    ],
)
def test_a_wrong_value(faults: Faults, more: str, message: str) -> None:
    (found,) = faults(more).values()
    assert message in str(found)


@pytest.mark.parametrize(
    ("more", "path", "kind", "wrong", "right"),
    [
        ("[algorithm]\nname = 'fedavgg'", "algorithm.name", "algorithm", "fedavgg", "fedavg"),
        ("[data]\nname = 'digit'", "data.name", "data set", "digit", "digits"),
        ("[data.partition]\nname = 'idd'", "data.partition.name", "partition", "idd", "iid"),
        ("[models.m]\nname = 'mpl'", "models.m.name", "model", "mpl", "mlp"),
        ("[models.mpl]", "models.mpl", "model", "mpl", "mlp"),
        ("device = 'hihg'", "fleet.0.device", "device class", "hihg", "high"),
        ("[server]\ndevice = 'sever'", "server.device", "device class", "sever", "server"),
        ("[network]\nmodel = 'naiv'", "network.model", "network model", "naiv", "naive"),
        ("[engine]\nexecutor = 'thread'", "engine.executor", "executor", "thread", "threads"),
        ("[participation]\nselector = 'unifrom'", "participation.selector", "selector", "unifrom", "uniform"),
        ("[participation.pacing]\nname = 'sync'", "participation.pacing.name", "pacing", "sync", ""),
        ("[training]\nschedule = ['cosin']", "training.schedule.0", "schedule", "cosin", "cosine"),
        ("[data]\naugmentation = 'flop'", "data.augmentation", "augmentation", "flop", "flip"),
        ("[participation]\nworkload = 'fixd'", "participation.workload", "workload", "fixd", "fixed"),
        ("[algorithms.fedpox]\nmu = 1", "algorithms.fedpox", "algorithm", "fedpox", "fedprox"),
        ("[algorithm]\nname = 'lab.fast'", "algorithm.name", "algorithm", "lab.fast", ""),
        ("[algorithm]\nname = '../fedavg'", "algorithm.name", "algorithm", "../fedavg", "fedavg"),
        ("[algorithm]\nname = ''", "algorithm.name", "algorithm", "", ""),
        ("[algorithm]\nname = 'base'", "algorithm.name", "algorithm", "base", None),
    ],
)
def test_an_unknown_plugin_names_the_nearest(
    faults: Faults, more: str, path: str, kind: str, wrong: str, right: str | None
) -> None:
    (found,) = faults(more).values()
    guess = "" if right is None else f" — did you mean {right!r}? there are: " if right else " — there are: "
    assert str(found).startswith(f"{path}: no {kind} is called {wrong!r}{guess}")
    assert ("a dotted path names a module that Python can import (PYTHONPATH)" in found.mend) == (
        "." in wrong
    )


def test_a_plugin_of_another_kind(faults: Faults) -> None:
    (found,) = faults("[algorithm]\nname = 'fedsim.network.naive'").values()
    assert "'fedsim.network.naive' is a plugin, but no algorithm" in str(found)


def test_private_plugins_are_found_by_dotted_path(
    load: Load, faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A private plugin is told apart by a dot, so a module of its own lies in a package.
    package = tmp_path / "lab"
    package.mkdir()
    (package / "my_lab.py").write_text(
        "from fedsim.algorithms.fedprox import FedProx\n\nclass Mine(FedProx):\n    pass\n\nPLUGIN = Mine\n"
    )
    (package / "my_broken.py").write_text("1 / 0\n")
    (package / "my_needy.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    scenario = load("[algorithm]\nname = 'lab.my_lab'\nparams.mu = 0.5\n")
    assert scenario.algorithm.params == FedProxConfig(mu=0.5)
    found = faults("[algorithm]\nname = 'lab.my_lab'\nparams.nu = 0.5\n")
    assert "there are: weighting, mu, gamma" in found["algorithm.params.nu"].mend
    broken = faults("[algorithm]\nname = 'lab.my_broken'\n")["algorithm.name"]
    assert broken.problem == "'lab.my_broken' cannot be imported: ZeroDivisionError: division by zero"
    needy = faults("[algorithm]\nname = 'lab.my_needy'\n")["algorithm.name"]
    assert "cannot be imported: No module named 'a_module_that_nobody_has'" in needy.problem
    (package / "my_bare.py").write_text("")
    bare = faults("[algorithm]\nname = 'lab.my_bare'\n")["algorithm.name"]
    assert str(bare) == (
        "algorithm.name: module 'lab.my_bare' offers no plugin: end it with PLUGIN = the class"
    )


def test_a_private_plugin_without_a_dot_is_told_its_dotted_path(
    faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mymedian.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = faults(algorithm="mymedian")["algorithm.name"]
    assert found.problem == "no algorithm is called 'mymedian'"
    assert found.mend.endswith(
        "; a private plugin is named by a dotted path: put mymedian.py in a package, "
        "lab/mymedian.py is 'lab.mymedian'"
    )
    # Neither Python's own modules nor anything that is no module is meant.
    for name in ("statistics", "numpy", "__main__", "fedavgg", "my-median"):
        assert "dotted path" not in faults(algorithm=name)["algorithm.name"].mend


@pytest.mark.parametrize("name", ["a b", "a/b", "..", "", "-x", "é", "x" * 101])
def test_a_name_that_cannot_be_a_folder(faults: Faults, name: str) -> None:
    (found,) = faults(text=f"[run]\nrounds = 1\nname = '{name}'\n[[fleet]]\ncount = 1\n").values()
    assert found.path == "run.name"
    rule = "cannot name a folder: a name is 1 to 100 letters, digits, '-', '_' and '.'"
    assert f"{quoted(name)} {rule}" in str(found)


def test_names_that_can(load: Load) -> None:
    for name in ("a", "2024-01_b.c", "_x"):
        assert load(text=f"[run]\nrounds = 1\nname = '{name}'\n[[fleet]]\ncount = 1\n").run.name == name


def test_all_faults_at_once_in_the_order_of_the_file(faults: Faults) -> None:
    found = faults(
        text="""
        extra = 1
        [run]
        seed = -1
        rounds = "5"
        [data]
        name = "digit"
        [training]
        lr = 0
        [algorithm]
        name = "fedmd"
        params = { digest = "mea", nothing = 1 }
        [[fleet]]
        count = 3
        up = 5
        [[fleet]]
        device = "hihg"
        count = 2
        [participation]
        clients_per_round = 0
        [engine]
        device = "gpu"
        """,
        overrides=["training.steps=two words", "run.nmae=x", "no equals sign"],
    )
    assert list(found) == [
        "extra",
        "run.seed",
        "run.rounds",
        "run.nmae",
        "data.public.size",
        "data.name",
        "training.lr",
        "training.steps",
        "algorithm.params.digest",
        "algorithm.params.nothing",
        "fleet.0.up",
        "fleet.1.device",
        "participation.clients_per_round",
        "engine.device",
        "",
    ]


@pytest.mark.parametrize(
    ("more", "paths"),
    [
        ("latency = 3\ndevice = 'midd'", {"fleet.0.latency", "fleet.0.device"}),
        ("[server]\nlatency = 3\ndevice = 'midd'", {"server.latency", "server.device"}),
        (
            "up = 3\n[[fleet]]\ncount = 1\nmodel = 'huge'\n[participation]\nclients_per_round = 50",
            {"fleet.0.up", "fleet.1.model", "participation.clients_per_round"},
        ),
        ("[training]\nlr = -1\nepochs = 1\nsteps = 1", {"training.lr", "training.steps"}),
        ("[training]\nlr = -1\noptimiser = 'adam'\nmomentum = 0.5", {"training.lr", "training.momentum"}),
        (
            "[participation]\nfoo = 1\nclients_per_round = 50",
            {"participation.foo", "participation.clients_per_round"},
        ),
        (
            "[algorithm]\nname = 'fedmd'\nparams.foo = 1\n[data]\nlimitt = 3",
            {"algorithm.params.foo", "data.limitt", "data.public.size"},
        ),
        (
            "model = 'b'\n[[fleet]]\ncount = 1\nmodel = 'a'\nup = 1\n"
            "[models.a]\nname = 'mlp'\nparams.foo = 1\n[models.b]\nname = 'mpl'",
            {"fleet.1.model", "fleet.1.up", "models.a.params.foo", "models.b.name"},
        ),
        (
            "[models.'a b']\nname = 'mlp'\n[models.'c d']\nname = 'mlp'\nparams.foo = 1",
            {'models."a b"', 'models."c d"', 'models."c d".params.foo', "fleet.0"},
        ),
        (
            "[data]\nsplit = [0.8, 0.2, 0]\nlimit = 0\n[evaluation]\nevery = 1\nclients = 0",
            {"data.limit", "evaluation.clients", "evaluation.split"},
        ),
        (
            "[data]\nname = 'sizes'\nglobal_test = 0.5\nfoo = 1\n[engine]\nworkers = 0",
            {"data.global_test", "data.foo", "engine.workers", "engine.executor"},
        ),
    ],
)
def test_a_fault_hides_no_other(faults: Faults, more: str, paths: set[str]) -> None:
    assert set(faults(more)) == paths


@pytest.mark.parametrize(
    ("more", "paths"),
    [
        # How many clients there are is not known, ...
        ("[participation]\nclients_per_round = 9\n[[fleet]]\n", {"fleet.1.count"}),
        ("[participation]\nclients_per_round = '9'\n", {"participation.clients_per_round"}),
        # ... nor which model is meant, ...
        ("model = 5\n[models.mlp]\n[models.linear]\n", {"fleet.0.model"}),
        ("[server]\nmodel = 5\n", {"server.model"}),
        # ... which algorithm, ...
        ("[algorithm]\nname = 'fedmdd'\n", {"algorithm.name"}),
        ("[algorithm]\nname = 5\n", {"algorithm.name"}),
        # ... and what is in a table that is none.
        ("", {"data", "models", "participation"}),
    ],
)
def test_what_depends_on_a_wrong_value_is_not_guessed(faults: Faults, more: str, paths: set[str]) -> None:
    tables = "" if more else "data = 1\nmodels = 2\nparticipation = 3\n"
    assert set(faults(more, text=tables + "[run]\nrounds = 2\n[[fleet]]\ncount = 4\n")) == paths


def test_a_fleet_that_is_no_list_leaves_the_server_to_be_checked(faults: Faults) -> None:
    found = faults(text="fleet = 3\n[run]\nrounds = 1\n[server]\nmodel = 'x'\n")
    assert set(found) == {"fleet", "server.model"}
    assert set(faults(text="fleet = [3]\n[run]\nrounds = 1\n")) == {"fleet.0"}


def test_the_error_text_counts_and_indents(faults: Faults, tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text("a = 1\nb = 1\n[run]\nrounds = 1\n[[fleet]]\ncount = 1\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path}: 2 faults"
    assert [line[:5] for line in lines[1:]] == ["  a: ", "  b: "]


COMPARISON = """
[algorithm]
name = "fedprox"
params = { mu = 0.5 }
[algorithms.fedmd]
digest = "kl"
[data.public]
size = 50
"""


def test_the_files_own_algorithm_keeps_its_parameters(load: Load) -> None:
    assert load(COMPARISON).algorithm.params == FedProxConfig(mu=0.5)
    assert load(COMPARISON, algorithm="fedprox").algorithm.params == FedProxConfig(mu=0.5)


def test_another_algorithm_takes_its_parameters_from_its_table(load: Load) -> None:
    scenario = load(COMPARISON, algorithm="fedmd")
    assert scenario.algorithm.name == "fedmd"
    assert scenario.algorithm.params == FedMDConfig(digest="kl")
    assert scenario.algorithms["fedprox"].params == FedProxConfig(mu=0.5)
    assert list(scenario.algorithms) == ["fedprox"]


def test_an_algorithm_without_table_has_its_defaults(load: Load) -> None:
    scenario = load(COMPARISON, algorithm="local")
    assert scenario.algorithm.name == "local"
    assert scenario.algorithm.params.follow_selection is False


def test_without_parameters_of_its_own_the_files_algorithm_has_its_table_too(load: Load) -> None:
    scenario = load("[algorithm]\nname = 'fedprox'\n[algorithms.fedprox]\nmu = 0.25\n")
    assert scenario.algorithm.params == FedProxConfig(mu=0.25)
    assert scenario.algorithms == {}


def test_parameters_given_twice(faults: Faults) -> None:
    found = faults("[algorithm]\nname = 'fedprox'\nparams.mu = 1\n[algorithms.fedprox]\nmu = 0.25\n")
    assert str(found["algorithms.fedprox"]) == (
        "algorithms.fedprox: the parameters of 'fedprox' are given here and in [algorithm.params] — "
        "keep one of the two"
    )


def test_what_is_set_applies_to_the_algorithm_that_is_chosen(load: Load) -> None:
    scenario = load(COMPARISON, overrides=["algorithm.params.digest=mse"], algorithm="fedmd")
    assert scenario.algorithm.params == FedMDConfig(digest="mse")
    scenario = load(COMPARISON, overrides=["algorithms.fedmd.digest=mae"], algorithm="fedmd")
    assert scenario.algorithm.params == FedMDConfig(digest="mae")


def test_faults_of_a_chosen_algorithm_are_named_where_the_file_has_them(faults: Faults) -> None:
    text = COMPARISON.replace("kl", "kll").replace("mu = 0.5", "mu = -1")
    assert set(faults(text, algorithm="fedmd")) == {"algorithms.fedmd.digest", "algorithm.params.mu"}
    assert set(faults(text)) == {"algorithms.fedmd.digest", "algorithm.params.mu"}


def test_two_words_on_which_algorithm(faults: Faults) -> None:
    found = faults(overrides=["algorithm.name=fedprox"], algorithm="local")
    assert str(found["algorithm.name"]) == (
        "algorithm.name: an override asks for 'fedprox', but 'local' is to be run — leave one of them out"
    )


def test_an_unknown_algorithm_that_was_asked_for(faults: Faults) -> None:
    assert "did you mean 'fedprox'" in faults(algorithm="fedpro")["algorithm.name"].mend


def test_the_file_is_read_from_any_kind_of_path(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[run]\nrounds = 1\n[[fleet]]\ncount = 1\n")
    assert load_scenario(str(path)) == load_scenario(Path(path))


def test_a_source_may_be_a_name_or_a_table(load: Load) -> None:
    public = load("[data.public]\nsize = 5\nsource = 'mnist'\nheld = 'server'\n").data.public
    assert (public.source.name, public.augment, public.held) == ("mnist", "none", "server")
    table = load("[data.public]\nsize = 5\n[data.public.source]\nname = 'mnist'\n").data.public
    assert table.source == public.source
    chosen = load(
        "[data.public]\nsize = 5\nsource = 'mnist'\n", overrides=["data.public.source.name='cifar10'"]
    )
    assert chosen.data.public.source.name == "cifar10"
    assert load().data.public.source is None


@pytest.mark.parametrize(
    ("more", "path", "says"),
    [
        ("source = 'digts'", "data.public.source", "no data set is called 'digts' — did you mean 'digits'?"),
        ("source = 3", "data.public.source", "3 is neither a name nor a table of name and params"),
        ("source.params = {}", "data.public.source.name", "it is missing"),
        (
            "source = { name = 'digits', params = { shap = 1 } }",
            "data.public.source.params.shap",
            "no key is called 'shap' here — did you mean 'shape'?",
        ),
        (
            "augment = 'fedt'",
            "data.public.augment",
            "\"fedt\" is not 'none' or 'fedet' — did you mean 'fedet'?",
        ),
        ("held = 'sever'", "data.public.held", "\"sever\" is not 'everywhere' or 'server' — did you mean"),
    ],
)
def test_faults_of_a_public_set(faults: Faults, more: str, path: str, says: str) -> None:
    found = faults(f"[data.public]\n{more}\n")
    assert list(found) == [path]
    assert str(found[path]).startswith(f"{path}: {says}")


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("training.lr=0.1", ("training", "lr"), 0.1),
        ("run.rounds = 5", ("run", "rounds"), 5),
        ("data.name=mnist", ("data", "name"), "mnist"),
        ('data.name="mnist"', ("data", "name"), "mnist"),
        ("fleet.0.up=5 Mbit/s", ("fleet", "0", "up"), "5 Mbit/s"),
        ("models.mlp.params.hidden=[8, 4]", ("models", "mlp", "params", "hidden"), [8, 4]),
        ("data.partition={ name = 'iid' }", ("data", "partition"), {"name": "iid"}),
        ("data.partition.params.cap=true", ("data", "partition", "params", "cap"), True),
        ('algorithms."my_lab.fast".mu=1', ("algorithms", "my_lab.fast", "mu"), 1),
        ("run.name=a=b", ("run", "name"), "a=b"),
        ("run.name=", ("run", "name"), ""),
        ("run.name=2024-01-01", ("run", "name"), "2024-01-01"),
        ("run.name=1\nseed = 2", ("run", "name"), "1\nseed = 2"),
    ],
)
def test_paths_and_values(text: str, keys: Any, value: Any) -> None:
    assert parse_override(text) == Override(keys, value)


@pytest.mark.parametrize("text", ["training.lr", "", "lr 0.1"])
def test_no_equals_sign(text: str) -> None:
    fault = parse_override(text)
    assert fault == Fault(
        "", f"the override {text!r} has no '='", "write PATH=VALUE, such as training.lr=0.1"
    )


@pytest.mark.parametrize("text", ["=3", " = 3"])
def test_no_path(text: str) -> None:
    fault = parse_override(text)
    assert isinstance(fault, Fault)
    assert "names no path before '='" in fault.problem


@pytest.mark.parametrize(
    "path", ["run..rounds", "fleet.*.count", "fleet[0].count", "a b", ".a", "a.", "[a]\nb=3\nc"]
)
def test_a_malformed_path(path: str) -> None:
    fault = parse_override(f"{path}=3")
    assert isinstance(fault, Fault)
    first = path.partition("=")[0]
    assert fault.problem == f"the override {f'{path}=3'!r}: the path {first!r} is malformed"
    assert "entries of a list are numbered from 0, as in fleet.0.count" in fault.mend


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.integers() | st.booleans())
def test_any_path_can_be_written(keys: Any, value: Any) -> None:
    if any("=" in key for key in keys):
        return
    written = f"{toml_writer.path(*keys)}={toml_writer.value(value)}"
    assert parse_override(written) == Override(tuple(keys), value)


def test_tables_are_made_and_entries_replaced() -> None:
    document = {"fleet": [{"count": 1}, {"count": 2}]}
    assert apply_override(document, Override(("fleet", "1", "count"), 5)) is None
    assert apply_override(document, Override(("a", "b", "c"), 1)) is None
    assert document == {"fleet": [{"count": 1}, {"count": 5}], "a": {"b": {"c": 1}}}


def test_the_short_form_of_a_choice_gives_way() -> None:
    document: dict[str, Any] = {"participation": {"selector": "uniform"}}
    assert apply_override(document, Override(("participation", "selector", "params", "x"), 1)) is None
    assert document == {"participation": {"selector": {"name": "uniform", "params": {"x": 1}}}}


def test_an_entry_that_is_not_there(faults: Faults) -> None:
    found = faults(overrides=["fleet.1.count=3"])
    assert str(found["fleet.1"]) == (
        "fleet.1: override of fleet.1.count: fleet is a list of 1, and has no entry '1' — "
        "entries are numbered 0 to 0"
    )
    assert "has no entry 'first'" in faults(overrides=["fleet.first.count=3"])["fleet.first"].problem


def test_a_path_through_a_value(faults: Faults) -> None:
    found = faults("[training]\nlr = 0.5\n", overrides=["training.lr.x=3"])
    assert str(found["training.lr.x"]) == (
        "training.lr.x: override of training.lr.x: training.lr is 0.5, not a table that could hold 'x' — "
        "set training.lr itself"
    )
    # From Python, whatever is there.
    found_there = apply_override({"training": None}, Override(("training", "lr"), 1))
    assert found_there is not None
    assert found_there.problem.endswith("training is None, not a table that could hold 'lr'")


def test_an_unknown_path(faults: Faults) -> None:
    found = faults(overrides=["trainin.lr=3", "training.lrr=3"])
    assert found["trainin"].mend.startswith("did you mean 'training'?")
    assert found["training.lrr"].mend.startswith("did you mean 'lr'?")


def test_values_are_checked_like_the_files(faults: Faults) -> None:
    assert "has no unit" in faults(overrides=["fleet.0.up=5"])["fleet.0.up"].problem
    assert '"fast" is a text, a number is wanted' in str(
        faults(overrides=["training.lr=fast"])["training.lr"]
    )


def test_what_is_set_is_what_is_run(load: Load) -> None:
    scenario = load(overrides=["training.lr=0.5", "fleet.0.up=5 Mbit/s", "models.mlp.params.hidden=[3]"])
    assert scenario.training.lr == 0.5
    assert scenario.fleet[0].up.value == 5e6
    assert scenario.models["mlp"].params.hidden == (3,)


TINY: dict[str, Any] = {"run": {"rounds": 1}, "fleet": [{"count": 2, "device": "low"}]}


def test_trackers_are_no_part_of_what_a_run_is() -> None:
    plain = load_scenario(TINY)
    wandb = {"name": "wandb", "params": {"project": "mine"}}
    loaded = load_scenario(TINY, {"run.trackers": ["tensorboard", wandb]})
    assert resolved_toml(loaded) == resolved_toml(plain)
    assert "trackers" not in tomllib.loads(resolved_toml(loaded))["run"]
    assert [choice.name for choice in loaded.run.trackers] == ["tensorboard", "wandb"]
    assert loaded.run.trackers[1].make().config.project == "mine"
    assert load_scenario(loaded).run.trackers == loaded.run.trackers


def test_named_trackers_take_the_place_of_a_scenarios_own() -> None:
    loaded = load_scenario(TINY, {"run.trackers": ["tensorboard"]})
    assert [choice.name for choice in tracked(loaded, ["wandb", "mlflow", "wandb"]).run.trackers] == [
        *("wandb", "mlflow")
    ]
    assert tracked(loaded, []) is loaded


def test_what_is_wrong_with_a_scenarios_trackers() -> None:
    wrong = ["tensorbord", {"name": "wandb", "params": {"mode": "off"}}]
    with pytest.raises(ScenarioError) as caught:
        load_scenario(TINY, {"run.trackers": wrong})
    unknown, mode = caught.value.faults
    assert (unknown.path, unknown.problem) == ("run.trackers.0", "no tracker is called 'tensorbord'")
    assert mode.path == "run.trackers.1.params.mode"


def test_a_tracker_by_itself() -> None:
    from_texts = load_tracker("wandb", ["project=mine"], folder="logs")
    assert (from_texts.config.project, from_texts.config.folder) == ("mine", "logs")
    from_values = load_tracker(type(from_texts), {"project": "mine", "folder": "logs"})
    assert from_values.config == from_texts.config
    assert load_tracker("tensorboard").config.folder is None
    with pytest.raises(ScenarioError) as caught:
        load_tracker("wandb", ["projekt=mine", "nothing"])
    assert [fault.path for fault in caught.value.faults] == ["", "params.projekt"]
