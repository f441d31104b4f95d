"""Random scenarios: a function of a seed, whose runs take a fraction of a second.

All that the schema offers may be drawn, except what needs files of real data. Incompatible settings are not
drawn together. Frames, jobs, absences, deadlines and leases take between milliseconds and minutes, so that
they meet. A seed gives the same scenario as long as these files and the algorithms' options do not change
(:mod:`fedsim.fuzz.dice`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsim import toml_writer
from fedsim.fuzz.dice import Dice, Table
from fedsim.fuzz.random_algorithms import ALGORITHMS, BY_STEPS, has_any_net, params_of, plugin_of
from fedsim.fuzz.random_fleets import PERIODS, RATES, battery, capacity, cells, group, law
from fedsim.rng import Key

WITHOUT_COHORT = ("local", "centralized")
"""Algorithms whose clients report no loss to a selector."""
DIFFERENCES = ("fedavg", "fedprox", "fedasync", "ditto", "fedbuff", "scaffold", "fedper", "moon", "apfl")
"""Algorithms whose clients send models like the one that came, or changes of it."""
PATIENCE = ("400 ms", "2 s", "5 s", "15 s", "1 min")

FEATURES: Mapping[str, Sequence[tuple[str, str]]] = {
    "absences": [("fleet", "availability"), ("fleet", "drop_out")],
    "links": [("fleet", "up"), ("fleet", "down"), ("fleet", "up_trace"), ("fleet", "down_trace")],
    "loads": [("fleet", "load"), ("fleet", "variation"), ("fleet", "overhead")],
    "overhead": [("network", "overhead"), ("network", "params")],
    "pacing": [("participation", "pacing")],
    "selector": [("participation", "selector")],
    "workload": [("participation", "workload")],
    "evaluation": [("evaluation", "every"), ("evaluation", "every_s"), ("evaluation", "clients")],
    "optimiser": [("training", key) for key in ("schedule", "optimiser", "momentum", "keep_optimiser")],
}
"""What scenarios may do without: for each feature the tables and keys that it has."""


@dataclass(frozen=True)
class RandomScenario:
    """A scenario, with the files that it names, which belong in the working directory."""

    tables: Table
    files: Mapping[str, str] = field(default_factory=dict)  # texts by name
    name: str = "scenario"

    @property
    def toml(self) -> str:
        """The file's text."""
        return toml_writer.document(self.tables)


def random_scenario(seed: int, algorithm: str = "") -> RandomScenario:
    """Return the scenario of a seed; with an algorithm, if it is named, and parameters that suit it."""
    dice = Dice(Key.root(seed).child("random scenario"))
    files: dict[str, str] = {}
    drawn = dice.pick(*ALGORITHMS)
    algorithm = algorithm or drawn
    is_null = dice.chance(0.12)
    data_name = _data_name(dice, algorithm, is_null=is_null)
    counts = [dice.whole(1, 4) for _ in range(dice.pick(1, 1, 2, 2, 3, 4))]
    num_clients = sum(counts)
    models = _models(dice.child("models"), algorithm)
    params = params_of(dice.child("params"), algorithm, list(models))
    network = _network(dice.child("network"), files)
    fleet = [
        group(dice.child("group", number), number, count, list(models), network["model"], files)
        for number, count in enumerate(counts)
    ]
    if dice.chance(0.5):  # otherwise one that never leaves may be in every fleet
        fleet[0] |= {"availability": "always", "drop_out": "0 /s"}
    scenario: Table = {
        "run": {"name": f"seed-{seed}", "seed": dice.whole(0, 9), "rounds": dice.whole(1, 4)},
        "data": _data(dice.child("data"), data_name, algorithm, num_clients),
        "models": models,
        "algorithm": {"name": algorithm, "params": params},
        "training": _training(dice.child("training"), in_epochs=params.get("ramp_epochs", False)),
        "fleet": fleet,
        "server": _server(dice.child("server"), algorithm, list(models)),
        "network": network,
        "participation": _participation(dice.child("participation"), num_clients),
        "engine": {"executor": "null" if is_null else "threads", "workers": dice.whole(1, 4)},
        "evaluation": _evaluation(dice.child("evaluation"), num_clients),
    }
    scenario["participation"] |= _workload(dice.child("workload"), algorithm, params, scenario["training"])
    if dice.chance(0.15):
        budget = dice.pick(
            {"simulated": "2 s"}, {"simulated": "1 min"}, {"bytes": "30 kB"}, {"bytes": "1 MB"}
        )
        scenario["run"]["until"] = budget
    if dice.child("codec").chance(0.3):
        scenario["codec"] = _codec(dice.child("codecs"), algorithm)
    if dice.child("faulty").chance(0.3):
        labels, of_faults = [one["name"] for one in fleet], dice.child("faults")
        scenario["faults"] = [_fault(of_faults, labels) for _ in range(of_faults.whole(1, 3))]
        if algorithm not in WITHOUT_COHORT and dice.child("attack").chance(0.3):
            scenario["faults"].append(_attack(dice.child("attacks"), data_name, labels))
        if any(one["kind"] in ("loss", "corrupt", "partition") for one in scenario["faults"]):
            after = dice.child("after").pick("100 ms", "3 s")
            retry = {"times": dice.child("times").whole(1, 3), "after": after}
            scenario["participation"] |= dice.child("retry").some(0.8, retry=retry)
    if dice.child("crashing").chance(0.2):
        scenario.setdefault("faults", []).append(_crash(dice.child("crash")))
    scenario["data"] |= _augmentation(dice.child("augmentation"), scenario["data"])
    scenario["training"] |= _schedule(dice.child("schedule"))
    scenario["training"] |= dice.child("clipping").some(
        0.15, clip_norm=dice.child("norm").pick(0.1, 1.0, 10.0)
    )
    _leave_out(dice.child("left out"), scenario)
    _make_fit(scenario)
    _pace_otherwise(dice.child("pacing"), scenario, num_clients)
    stale = scenario["participation"].get("pacing", {}).get("params", {}).get("staleness", "constant")
    if plugin_of(algorithm).own_aggregation is None and stale == "constant":
        scenario |= dice.child("aggregation").some(0.2, aggregation=_aggregation(dice.child("rule")))
    if dice.child("with edges").chance(0.3):
        _add_edges(dice.child("edges"), scenario, num_clients)
    split, evaluation = scenario["data"].get("split"), scenario["evaluation"]
    has_classes = not is_null and data_name not in ("sizes", "synthetic_regression")
    if has_classes and evaluation.get("every") != 0:
        evaluation |= dice.child("per_class").some(0.3, per_class=True)
    if split is not None and (evaluation.get("every") != 0 or evaluation.get("at_start")):
        share = 1 if evaluation.get("split") == "val" else 2  # it has to be measured on something
        several = split if isinstance(split[0], list) else [split]
        if all(not one[share] for one in several):
            evaluation["split"] = "test" if share == 1 else "val"
    if (batteries := dice.child("batteries")).chance(0.2):
        for number, one in enumerate(fleet):
            one |= battery(batteries.child(number), number, files)
        scenario["run"] |= batteries.child("until").some(
            0.2, until={"joules": batteries.child("joules").pick("3 J", "100 J")}
        )
    if (energy := dice.child("energy")).chance(0.3):
        scenario["energy"] = energy.some(0.5, server_power="20 W", carbon_intensity="300 g/kWh")
    can_have_cells = network["model"] == "fluid" and "edge" not in scenario  # edges have brought cells along
    if can_have_cells and (other := dice.child("cells")).chance(0.2):
        scenario["cell"] = cells(other, [one["name"] for one in fleet], num_clients, files)
    return RandomScenario(scenario, files, f"seed-{seed}")


def _leave_out(dice: Dice, scenario: Table) -> None:
    """Take whole features out of a scenario, so that the others meet without them too."""
    for name, paths in FEATURES.items():
        if dice.child(name).chance(0.4):
            for table, key in paths:
                for one in scenario["fleet"] if table == "fleet" else [scenario.get(table, {})]:
                    one.pop(key, None)
    for key, default in (("selector", "uniform"), ("pacing", "synchronous")):
        scenario["participation"].setdefault(key, {"name": default, "params": {}})


def _make_fit(scenario: Table) -> None:
    """Change what the algorithm would refuse."""
    params, training, data = scenario["algorithm"]["params"], scenario["training"], scenario["data"]
    participation, name = scenario["participation"], scenario["algorithm"]["name"]
    if name in WITHOUT_COHORT and participation["selector"]["name"] in ("power_of_choice", "oort"):
        participation["selector"] = {"name": "uniform", "params": {}}
    if "clients_per_round" not in participation:  # then all are a cohort
        participation["selector"]["params"].pop("candidates", None)
    if plugin_of(name).new_replies_only:
        participation["pacing"]["params"].pop("late", None)
    match name:
        case "fedgems":
            data["public"].pop("source", None)  # which has no labels
        case "ifca" if params.get("option") == "grad_avg":
            for name in training.keys() - {"lr", "batch_size", "steps"}:
                training.pop(name)
            participation.pop("workload", None)  # it may draw from epochs
        case "fedmd" if data["name"] == "synthetic_regression":
            for name in ("digest", "exchange"):
                params.pop(name, None)
        case "l2sgd":
            for name in ("epochs", "steps"):
                training.pop(name, None)
        case "pfedme":
            params["lam"] = 1 / training["lr"]
            if training.get("optimiser") == "adam":
                del training["optimiser"]
                training.pop("keep_optimiser", None)  # of plain sgd, which has nothing to keep
        case "scaffold" if training.keys() & {"optimiser", "momentum", "weight_decay", "clip_norm"}:
            params["option"] = "I"


def _pace_otherwise(dice: Dice, scenario: Table, num_clients: int) -> None:
    """Draw another pacing, and change what it would be refused with."""
    participation, algorithm = scenario["participation"], scenario["algorithm"]["name"]
    if dice.chance(0.12):
        params = {"tiers": dice.whole(1, num_clients), "profiling": dice.whole(1, 2), "interval_rounds": 1}
        params |= dice.some(0.3, credits=dice.whole(1, 2))
        participation["pacing"] = {"name": "tiered", "params": participation["pacing"]["params"] | params}
    elif plugin_of(algorithm).discounted is not None and dice.chance(0.8 if algorithm in BY_STEPS else 0.4):
        participation["pacing"] = _overlapping(dice, scenario, num_clients)
    else:
        return
    # All have to be able to take part, as many as there are tiers, or are to be at work.
    for one in scenario["fleet"]:
        one.pop("memory", None)
    if scenario["data"].get("partition") not in (None, "by_user"):
        scenario["data"]["partition"] = "iid"
    if scenario["data"]["name"] == "sizes":
        scenario["data"]["params"]["samples"] = dice.whole(5, 40)


def _add_edges(dice: Dice, scenario: Table, num_clients: int) -> None:
    """Add cells with edges if the algorithm can have them, and take out what they would be refused with."""
    participation, algorithm = scenario["participation"], scenario["algorithm"]
    pacing, selector = participation["pacing"], participation["selector"]
    is_plain = "all_train" not in algorithm["params"] and algorithm["name"] not in (
        "fedavg_ft",
        "persfl",
        "persfl_gd",
    )
    if plugin_of(algorithm["name"]).no_edges is not None or not is_plain or num_clients < 2:
        return
    if pacing["name"] not in ("synchronous", "tiered") or scenario["network"]["model"] != "fluid":
        return
    for name in ("over_selection", "deadline", "deadline_quantile", "late"):
        pacing["params"].pop(name, None)
    if selector["name"] in ("power_of_choice", "oort"):
        participation["selector"] = {"name": "uniform", "params": {}}
    for name in ("codec", "aggregation"):
        scenario.pop(name, None)
    names = dice.pick(["A"], ["A", "B"])
    scenario["cell"] = [
        {"name": name, "share": 0.5, "latency": dice.pick("0 s", "1 ns", "30 ms")}
        | dice.some(0.5, up=dice.pick("20 kbit/s", "5 Mbit/s"), down=dice.pick("20 kbit/s", "5 Mbit/s"))
        for name in names
    ]
    scenario["edge"] = [
        {"cell": name, "rounds": dice.whole(1, 3), "device": dice.pick("server", "low", "edge_gpu")}
        for name in names
    ]


def _overlapping(dice: Dice, scenario: Table, num_clients: int) -> Table:
    """Draw a pacing whose dispatches overlap merges, and change what it would be refused with."""
    algorithm, params = scenario["algorithm"]["name"], scenario["algorithm"]["params"]
    concurrency = dice.whole(1, num_clients)
    pacing: Table = {"concurrency": concurrency}
    size, name = 1, dice.pick("immediate", "buffered", "buffered", "lagged")
    if name == "lagged":
        size = scenario["participation"]["clients_per_round"] = dice.whole(1, concurrency)
        pacing |= {"max_lag": dice.whole(0, 2)} | dice.some(0.4, behind="wait", deadline=dice.pick(*PATIENCE))
    else:
        pacing |= dice.some(0.3, max_staleness=dice.whole(0, 3))
    if name == "buffered":
        size = pacing["buffer"] = dice.whole(1, concurrency)
    if size > 1 or algorithm in (*BY_STEPS, "local"):
        hinge = {"name": "hinge", "params": {"a": 2.0, "b": dice.pick(0, 1)}}
        pacing["staleness"] = dice.pick("constant", "polynomial", hinge)
    if algorithm in BY_STEPS and pacing["staleness"] != "constant":
        pacing |= dice.some(0.3, full_at=dice.pick(1.5, 2.0))
    match algorithm:
        case "local":
            params["follow_selection"] = True
        case "ifca":
            for option in ("option", "server_lr", "restart_rounds"):
                params.pop(option, None)
        case "pfedme":
            params.pop("all_train", None)
    return {"name": name, "params": pacing}


def _data_name(dice: Dice, algorithm: str, *, is_null: bool) -> str:
    if is_null and dice.chance(0.7):
        return "sizes"
    if not plugin_of(algorithm).needs_classes and dice.chance(0.2):
        return "synthetic_regression"
    return "writers" if dice.chance(0.15) else "digits"


def _data(dice: Dice, name: str, algorithm: str, num_clients: int) -> Table:
    data: Table = {"name": name}
    public: Table = {}
    if plugin_of(algorithm).needs_public or dice.chance(0.1):
        public = data["public"] = _public(dice.child("public"), name)
    if name == "sizes":
        samples = dice.pick(
            dice.whole(1, 40),
            {"distribution": "uniform", "low": dice.pick(0, 1, 5), "high": 30},
            {"distribution": "lognormal", "median": 12, "sigma": 1.0},
        )
        data["params"] = {"samples": samples, "input_shape": dice.pick([8], [1, 4, 4]), "num_classes": 3}
        return data
    data["split"] = dice.pick(
        [0.7, 0.1, 0.2], [0.5, 0.0, 0.5], [0.4, 0.6, 0.0], [[0.8, 0.0, 0.2], [0.4, 0.3, 0.3]]
    )
    if name == "synthetic_regression":
        data["params"] = {
            "groups": dice.whole(1, 3),
            "num_features": 4,
            "samples_per_client": dice.whole(10, 30) + 24 // num_clients,  # also where 24 are public
        }
        data["partition"] = dice.pick("iid", "by_user")
    elif name == "writers":
        data["params"] = {
            "num_writers": num_clients + 4,
            "samples_per_writer": float(dice.whole(12, 20)),
            "deviation": dice.pick(0.0, 5.0),
            "least": 8,
            "most": 30,
            "size": 8,
        } | dice.some(0.3, preference=1.0)
        data["partition"] = dice.pick("by_user", "iid")
    else:
        data |= {"limit": 10 * dice.whole(2 * num_clients + 4, 3 * num_clients + 8)}
        data["params"] = {
            "shape": "image" if public.keys() & {"augment", "source"} else dice.pick("flat", "image")
        }
        data["partition"] = _partition(dice, num_clients)
    held_out = dice.pick("", "", "global_test", "global_test_users")
    if held_out == "global_test" or (held_out and name == "writers"):
        data[held_out] = 0.1
    return data


def _augmentation(dice: Dice, data: Table) -> Table:
    """Draw what transforms images, of which the smallest have 4 pixels a side."""
    params = data.get("params", {})
    if (
        data["name"] != "writers"
        and params.get("shape") != "image"
        and params.get("input_shape") != [1, 4, 4]
    ):
        return {}
    augmentations = (
        "flip",
        {"name": "flip", "params": {"probability": 0.2}},
        {"name": "crop", "params": {"padding": dice.whole(1, 3)}},
        {"name": "cutout", "params": {"size": dice.whole(1, 3)}},
    )
    some = [dice.pick(*augmentations) for _ in range(dice.whole(1, 3))]
    return {"augmentation": some} if dice.chance(0.4) else {}


def _public(dice: Dice, name: str) -> Table:
    public: Table = {"size": dice.whole(4, 24)} | dice.some(0.3, held="server")
    if name == "writers" and dice.chance(0.3):
        del public["size"]
        public["users"] = 0.1
    elif name == "digits":
        public |= dice.some(0.1, augment="fedet")
        if dice.chance(0.1):
            public["source"] = {"name": "writers", "params": {"num_writers": 3, "size": 8}}
    return public


def _partition(dice: Dice, num_clients: int) -> Table:
    params: dict[str, Table] = {
        "iid": {},
        "two_class": {},
        "all_uneven": {"alpha": dice.pick(0.5, 5.0)},
        "classes_per_client": {"classes": dice.whole(1, 5)},
        "dirichlet_class": {"alpha": dice.pick(0.3, 10.0), "min_size": dice.whole(0, 3)},
        "dirichlet_client": {"alpha": dice.pick(0.1, 1.0)},
        "dirichlet_two_level": {"alpha_size": dice.pick(2.0, 50.0)},
        "label_groups": {"groups": dice.whole(1, min(2, num_clients)), "leak": dice.pick(0.0, 0.3)},
        "two_class_lognormal": {"least": 1, "sigma": 0.5},
    }
    params["dirichlet_class"] |= {dice.pick("cap", "every_class"): dice.chance(0.3)}
    name = dice.pick(*params)
    return {"name": name, "params": params[name]}


def _models(dice: Dice, algorithm: str) -> Table:
    if algorithm == "fedet":
        head = {"representation": {"width": 4, "hidden": [3]}}
        models = {f"m{hidden}": {"name": "mlp", "params": {"hidden": [hidden]} | head} for hidden in (4, 6)}
    else:
        mlps = {f"m{hidden}": {"name": "mlp", "params": {"hidden": [hidden]}} for hidden in (4, 6)}
        models = ({} if algorithm in ("moon", "fedgkt") else {"linear": {}}) | mlps
    several = has_any_net(algorithm) and dice.chance(0.6)
    labels = list(models)
    first = dice.whole(0, len(labels) - 1)
    chosen = [*labels[first:], *labels[:first]][: dice.whole(2, len(labels)) if several else 1]
    return {label: models[label] for label in chosen}


def _training(dice: Dice, *, in_epochs: bool) -> Table:
    training: Table = {"lr": dice.pick(0.01, 0.05, 0.2), "batch_size": dice.whole(2, 12)}
    training["epochs" if in_epochs else dice.pick("epochs", "steps")] = dice.whole(0, 2)
    if dice.chance(0.3):
        training["optimiser"] = "adam"
        training |= dice.some(0.5, keep_optimiser=True)
    elif dice.chance(0.3):
        training["momentum"] = 0.9
        training |= dice.some(0.5, keep_optimiser=True)
    training |= dice.some(0.2, weight_decay=0.01)
    if dice.chance(0.03):  # replies that are no numbers, and are rejected
        training |= {"lr": 1e6, "weight_decay": 1e6}
    return training


def _schedule(dice: Dice) -> Table:
    schedules = (
        {"name": "step", "params": {"step_size": dice.whole(1, 3)}},
        {"name": "multistep", "params": {"milestones": [1, 3], "gamma": 0.5}},
        {"name": "exponential", "params": {"gamma": 0.8}},
        {"name": "cosine", "params": dice.some(0.5, min_factor=0.1, total_iters=dice.whole(1, 3))},
        {"name": "linear", "params": {"total_iters": dice.whole(1, 3)}},
        {"name": "polynomial", "params": dice.some(0.5, power=2.0)},
        {"name": "inverse_time", "params": {"decay": dice.pick(0.1, 1.0)}},
    )
    some = [dice.pick(*schedules) | dice.some(0.4, by="step") for _ in range(dice.pick(1, 1, 2))]
    return {"schedule": some} if dice.chance(0.2) else {}


def _server(dice: Dice, algorithm: str, labels: Sequence[str]) -> Table:
    server = dice.some(0.3, up=law(dice, RATES), down=law(dice, RATES), latency="20 ms", speed="1 MFLOP/s")
    return server | (dice.some(0.5, model=dice.pick(*labels)) if has_any_net(algorithm) else {})


def _network(dice: Dice, files: dict[str, str]) -> Table:
    network: Table = {"model": dice.pick("fluid", "fluid", "fluid", "naive", "none")}
    if network["model"] == "fluid":
        for key in ("server_up_trace", "server_down_trace"):
            if dice.chance(0.2):
                files[f"{key}.csv"] = capacity(dice.child(key))
                network.setdefault("params", {})[key] = f"{key}.csv"
    protocol = dice.pick("websocket", "http", "bus", "none")
    return network | {"overhead": {"protocol": protocol, "tls": protocol != "none" and dice.chance(0.5)}}


def _codec(dice: Dice, algorithm: str) -> Table:
    any_array = (["int8"], ["int4"], ["float16"], ["bfloat16"])
    top = {"name": "topk", "params": {"share": dice.pick(0.05, 0.3)}}
    changes = (
        [top, "int8"],
        ["sign"],
        ["ternary"],
        ["lowrank"],
        [{"name": "randk", "params": top["params"]}],
    )
    up: Table = {"chain": dice.pick(*any_array)}
    if algorithm in DIFFERENCES and dice.chance(0.6):
        chosen: list[Any] = dice.pick(*changes)
        up = {"chain": ["delta", *chosen], "error_feedback": dice.chance(0.5)}
    least = dice.pick("1 B", "200 B", "1 kB")
    logits = {"chain": dice.pick(["int8"], ["float16"], ["hard_labels"], ["top_classes"]), "least": least}
    return {
        "up": {"models": up | {"least": least}, "logits": logits},
        "down": {
            "models": {"chain": dice.pick(*any_array, []), "least": least},
            "logits": {"chain": ["int8"]},
        },
    }


def _fault(dice: Dice, groups: Sequence[str]) -> Table:
    kind = dice.pick("loss", "duplicate", "delay", "corrupt", "partition", "crash", "slow")
    fault: Table = {"kind": kind}
    match kind:
        case "crash":
            return _crash(dice)
        case "slow":
            fault |= {"factor": dice.pick(1.5, 4, 100)} | dice.some(0.7, at=dice.pick("30 ms", "2 s"))
            if dice.chance(0.6):
                fault |= {"for": dice.pick("100 ms", "700 ms"), "every": dice.pick("1 s", "1 min")}
            fault |= dice.pick({}, {"probability": 0.0}, {"probability": 0.3})
            return fault | _some_of(dice, groups)
        case _:
            fault |= dice.some(0.4, direction=dice.pick("up", "down"))
            if kind != "partition":
                fault["probability"] = dice.pick(0.0, 0.1, 0.3, 1.0)
            if kind == "delay":
                fault["delay"] = dice.pick("1 ms", "300 ms", "10 s")
            fault |= _some_of(dice, groups)
            if kind == "partition" or dice.chance(0.3):
                fault |= {"at": dice.pick("0 s", "100 ms", "3 s"), "for": dice.pick("50 ms", "1 s")}
                fault |= dice.some(0.5, every=dice.pick("2 s", "1 min"))
            return fault


def _some_of(dice: Dice, groups: Sequence[str]) -> Table:
    return dice.some(0.3, groups=[dice.pick(*groups)])


def _attack(dice: Dice, data_name: str, groups: Sequence[str]) -> Table:
    settings: dict[str, Table] = {
        "sign_flip": {},
        "scale": {"factor": dice.pick(-3, 0, 10)},
        "noise": {"deviation": dice.pick(0.01, 1)},
        "constant": {"value": dice.pick(0, 0.1)},
    }
    if data_name != "synthetic_regression":
        settings["label_flip"] = {}
    kind = dice.pick(*settings)
    attack = {"kind": kind, "share": dice.pick(0.0, 0.3, 0.5, 1.0)} | settings[kind]
    return attack | _some_of(dice, groups)


def _aggregation(dice: Dice) -> Any:
    return dice.pick(
        "median",
        {"name": "trimmed_mean", "params": {"f": 0}},
        {"name": "krum", "params": {"f": 0}},
        {"name": "multi_krum", "params": {"f": 0}},
        {"name": "geometric_median", "params": {"steps": dice.whole(1, 4)}},
        {"name": "norm_clipping", "params": {"c": dice.pick(0.01, 1.0)}},
    )


def _crash(dice: Dice) -> Table:
    crash: Table = {"kind": "crash", "at": dice.pick("30 ms", "2 s")} | dice.some(0.5, keeps_state=False)
    crash |= dice.some(0.6, every=dice.pick("1 s", "1 min"))
    return crash | {"probability": dice.pick(0.0, 0.3, 1.0)}


def _participation(dice: Dice, num_clients: int) -> Table:
    cohort = dice.whole(1, num_clients)
    pacing = dice.some(0.3, over_selection=dice.pick(1.3, 2.0), interval=dice.pick(*PERIODS))
    if dice.chance(0.4):
        deadline: Table = {"deadline": dice.pick(*PATIENCE)}
        pacing |= dice.pick(deadline, {"deadline_quantile": dice.pick(0.3, 0.8)})
        pacing |= dice.some(0.5, late="carry")
    if dice.chance(0.3):
        pacing |= {
            "min_replies": dice.whole(1, cohort),
            "on_failure": dice.pick("skip", "skip", "repeat", "stop"),
        }
    return {
        "client_timeout": dice.pick("1 h", "1 min", *PATIENCE),
        "on_leave": dice.pick("resume", "restart", "lost"),
        "selector": _selector(dice.child("selector"), cohort),
        "pacing": {"name": "synchronous", "params": pacing},
    } | dice.some(0.7, clients_per_round=cohort)


def _workload(dice: Dice, algorithm: str, params: Table, training: Table) -> Table:
    if algorithm in ("centralized", "l2sgd") or params.get("ramp_epochs") or not dice.chance(0.4):
        return {}
    if "epochs" in training and dice.chance(0.6):
        training["epochs"] = dice.whole(2, 3)
        return {"workload": {"name": "variable_epochs", "params": dice.some(0.5, share=0.9)}}
    fitting = {"deadline": dice.pick(*PATIENCE[2:])} | dice.some(0.3, min_steps=2)
    return {"workload": {"name": "deadline_fitted", "params": fitting}}


def _selector(dice: Dice, cohort: int) -> Table:
    chances = (("uniform", 0.25), ("by_size", 0.25), ("power_of_choice", 0.4), ("oort", 0.6))
    name = next((name for name, chance in chances if dice.chance(chance)), "least_available")
    params: Table = {}
    match name:
        case "power_of_choice":
            params = dice.pick({}, {"losses": "last"}, dice.some(0.5, answer_within=dice.pick(*PATIENCE)))
            params |= dice.some(0.3, samples=dice.whole(1, 9))
            params |= dice.some(0.3, candidates=cohort + dice.whole(0, 2))
        case "oort":
            params = dice.some(0.3, exploration=0.5, pacer_step=1, blacklist_after=1, samples=5, duration=1.0)
        case "least_available":
            params = {"predicted": dice.pick("told", "seen")} | dice.some(0.5, rest=dice.whole(0, 2))
    return {"name": name, "params": params}


def _evaluation(dice: Dice, num_clients: int) -> Table:
    evaluation = dice.some(0.2, clients=dice.whole(1, num_clients), split="val", batch_size=7)
    evaluation |= dice.child("at_start").some(0.3, at_start=True)
    if dice.chance(0.1):
        return {"every_s": dice.pick(0.001, 2.0, 3600.0)} | evaluation
    return {"every": dice.pick(0, 1, 1, 1, 2)} | evaluation
