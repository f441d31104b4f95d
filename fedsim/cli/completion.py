"""What shells complete beside commands and options: examples, files, plugins, paths and values of --set.

A shell asks at each Tab, so names are read from the folders as text: nothing of fedsim is imported that takes
time, and no plugin. Keys of tables are listed here, since their classes import torch; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from fedsim import example_files
from fedsim.cli.main_command import main
from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.plugin_listing import available

Items = list[CompletionItem[str]]

_NAMES = {
    "algorithm.name": "algorithms",
    "data.name": "datasets",
    "engine.executor": "executors",
    "fleet.*.device": "devices",
    "models.*.name": "models",
    "network.model": "networks",
    "server.device": "devices",
}
_NAMES_OR_TABLES = {
    "aggregation": "aggregations",
    "data.augmentation": "augmentations",
    "data.partition": "partitions",
    "data.public.source": "datasets",
    "fleet.*.availability": "availability",
    "participation.pacing": "pacings",
    "participation.pacing.params.staleness": "staleness",
    "participation.selector": "selectors",
    "participation.workload": "workloads",
    "training.schedule": "schedules",
}
CHOOSING = _NAMES | {f"{path}{end}": kind for path, kind in _NAMES_OR_TABLES.items() for end in ("", ".name")}
"""Paths whose value is a plugin's name, and the kind of plugin; ``*`` is a label or the number of a group."""

_OF_DEVICES = (
    "device model speed memory up down latency overhead variation efficiency memory_bandwidth drop_out load"
)
_POWERS = (
    "compute_power receive_power transmit_power receive_per_mbit_s transmit_per_mbit_s tail_power radio_tail "
    "idle_power"
)
_OF_CHAINS = "chain least error_feedback"

KEYS = {
    "aggregation": "name params",
    "algorithm": "name params",
    "cell": "0",
    "cell.*": "name groups share up down up_trace down_trace latency",
    "codec": "up down",
    "codec.down": "models logits",
    "codec.down.logits": _OF_CHAINS,
    "codec.down.models": _OF_CHAINS,
    "codec.up": "models logits",
    "codec.up.logits": _OF_CHAINS,
    "codec.up.models": _OF_CHAINS,
    "data": "name params root limit split global_test global_test_users public partition augmentation",
    "data.public": "size users source augment held",
    "engine": "executor params workers batching device numerics",
    "edge": "0",
    "edge.*": "cell rounds device up down latency",
    "energy": "carbon_intensity server_power pue",
    "evaluation": "every every_s at_start clients split batch_size per_class",
    "faults": "0",
    "faults.*": "kind probability delay factor share deviation value keeps_state direction groups at every "
    "for",
    "fleet": "0",
    "fleet.*": f"{_OF_DEVICES} {_POWERS} count up_trace down_trace radio battery file name models "
    "models_by_size availability",
    "fleet.*.battery": "capacity level floor charge_power plugged",
    "models": "",
    "models.*": "name params",
    "network": "model params overhead",
    "network.overhead": "protocol tls",
    "participation": "clients_per_round client_timeout retry on_leave selector pacing workload",
    "participation.retry": "times after",
    "run": "name seed until rounds save_models trackers checkpoint",
    "run.checkpoint": "every_rounds every_real_s keep max_share",
    "run.until": "accuracy of simulated bytes joules",
    "server": _OF_DEVICES,
    "training": "lr schedule batch_size epochs steps optimiser momentum weight_decay clip_norm "
    "public_buffers keep_optimiser",
}
"""Keys of a scenario's tables, by their paths; ``*`` as above."""


def print_script(shell: str) -> None:
    """Print what makes a shell complete."""
    click.echo(_SHELLS[shell](main, {}, "fedsim", "_FEDSIM_COMPLETE").source(), nl=False)


def scenarios(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete a scenario: an example's name, or a file."""
    return _named_or_file(example_files.names(), incomplete)


def studies(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete a study: an example's name, or a file."""
    return _named_or_file(example_files.names(studies=True), incomplete)


def scenarios_and_studies(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete what can be checked."""
    names = [*example_files.names(), *example_files.names(studies=True)]
    return _named_or_file(names, incomplete)


def examples(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete an example's name."""
    names = [*example_files.names(), *example_files.names(studies=True)]
    return _beginning(((name, "") for name in names), incomplete)


def algorithm(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete an algorithm's name."""
    return _beginning(_plugins("algorithms"), incomplete)


def algorithms(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete the last of several algorithms, with commas between them."""
    return _last_of(_plugins("algorithms"), incomplete)


def tracker(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete a tracker's name."""
    return _beginning(_plugins("trackers"), incomplete)


def value(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Complete a path, or its value if it chooses a plugin, such as ``fleet.0.device=``."""
    path, equals, text = incomplete.partition("=")
    if not equals:
        return _beginning(((candidate, "") for candidate in _paths(path.rpartition(".")[0])), incomplete)
    kind = CHOOSING.get(_starred(path))
    if kind is None:
        return []
    return [CompletionItem(f"{path}={item.value}", help=item.help) for item in _last_of(_plugins(kind), text)]


def _paths(table: str) -> list[str]:
    """Return the paths of a table's keys, ``.`` at the end of those of tables, ``=`` at the end of others."""
    if not table:
        return [f"{name}." for name in KEYS if "." not in name]
    paths = [f"{table}.{key}" for key in KEYS.get(_starred(table), "").split()]
    return [
        f"{path}." if _starred(path) in KEYS or path.endswith(".params") else f"{path}=" for path in paths
    ]


def _starred(path: str) -> str:
    words = path.split(".")
    if len(words) > 1 and words[0] in ("cell", "edge", "faults", "fleet", "models"):
        words[1] = "*"
    return ".".join(words)


def _named_or_file(names: Iterable[str], incomplete: str) -> Items:
    place = Path(incomplete)
    folder, start = (place.parent, place.name) if incomplete and incomplete[-1] != "/" else (place, "")
    files = sorted(str(file) for file in folder.glob("*.toml") if file.name.startswith(start))
    items = _beginning(((name, "") for name in dict.fromkeys([*names, *files])), incomplete)
    return items or [CompletionItem(incomplete, type="file")]


def _beginning(names: Iterable[tuple[str, str]], incomplete: str) -> Items:
    return [CompletionItem(name, help=words or None) for name, words in names if name.startswith(incomplete)]


def _last_of(names: Iterable[tuple[str, str]], incomplete: str) -> Items:
    before, comma, last = incomplete.rpartition(",")
    others = [(name, words) for name, words in names if name not in before.split(",")]
    return [CompletionItem(before + comma + item.value, help=item.help) for item in _beginning(others, last)]


def _plugins(kind: str) -> list[tuple[str, str]]:
    return [(info.name, info.summary) for info in available(FOLDERS[kind])]


class Bash(BashComplete):
    """Bash ends words at '=', and replaces only what is behind it; a path is not followed by a space."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *[=.] ]] && compopt -o nospace"
    )
    _before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words, and the one to complete, with what bash has taken apart in one piece."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        ends_open = False
        for word in [*args, incomplete]:
            if words and (word == "=" or ends_open):
                words[-1] += word
            else:
                words.append(word)
            ends_open = word == "="
        self._before = words[-1].rpartition("=")[0] + "=" if "=" in words[-1] else ""
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return an item, without what bash leaves as it is."""
        return f"{item.type},{str(item.value).removeprefix(self._before)}"


class Fish(FishComplete):
    """Lists with commas stay in one piece."""

    source_template = FishComplete.source_template.replace('split ","', 'split -m 1 ","')


class Zsh(ZshComplete):
    """A path is not followed by a space."""

    source_template = ZshComplete.source_template.replace(
        'if [[ "$descr" == "_" ]]; then',
        'if [[ "$key" == *[=.] ]]; then\n                compadd -U -S "" -- "$key"\n'
        '            elif [[ "$descr" == "_" ]]; then',
    )


_SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "fish": Fish, "zsh": Zsh}
for shell, complete in _SHELLS.items():
    add_completion_class(complete, shell)
