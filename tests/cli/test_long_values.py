"""A value of a hundred thousand characters is not thrown back at who wrote it."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call

LONG = "x" * 100_000
DIGITS = "9" * 100_000
NAMES = "lab." + LONG


def assert_short(call: Call, *arguments: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert 20 < len(result.stderr) < 2000


PATHS = (
    "training.lr training.optimiser training.keep_optimiser run.name run data.name data.partition "
    "data.public.source algorithm.name models.a.name engine.executor network.model "
    "participation.selector participation.pacing participation.client_timeout fleet.0.speed "
    "fleet.0.device fleet.0.model fleet.0.file fleet.0.up_trace fleet.0.availability"
)
KEYS = "{} training.{} training.lr.{} fleet.{}.count data.params.{} algorithms.{}.mu models.{}.hidden"


@pytest.mark.parametrize(
    "text",
    [
        *(f"{path}={LONG}" for path in ("", *PATHS.split())),
        *(f"{key.format(LONG)}=1" for key in KEYS.split()),
        LONG,
        f"fleet.{DIGITS}.count=1",
        f"training.lr={DIGITS}",
        f"training.lr=\uff11{DIGITS}",
        f"training.batch_size=[{','.join('1' * 50_000)}]",
        f"data.name={NAMES}",
        f"participation.client_timeout=1 {LONG}",
        f"participation.client_timeout={DIGITS} s",
        f"fleet.0.speed={{distribution='{LONG}'}}",
        f"fleet.0.models={{{LONG}=1}}",
        f"fleet.0.up_trace={LONG}.csv",
        f"fleet.0.up_trace={LONG}.npz",
        f"fleet.0.availability={{name='trace', params={{file='{LONG}'}}}}",
        f"fleet.0.availability={{name='diurnal', params={{zones={{{LONG}=1}}}}}}",
    ],
    ids=lambda text: text[:40].replace("x" * 9, ""),
)
def test_a_long_value_of_a_scenario(call: Call, text: str) -> None:
    assert_short(call, "check", "tiny.toml", "--set", text)


@pytest.mark.parametrize("dataset", ["files", "texts", "shakespeare", "mnist", "emnist", "cifar10"])
@pytest.mark.parametrize("key", ["root", "params.file", "params.x", "params.users"])
def test_a_long_path_of_a_data_set(call: Call, dataset: str, key: str) -> None:
    values = [f"data.name={dataset}", f"data.{key}={LONG}"]
    assert_short(call, "check", "tiny.toml", *(part for value in values for part in ("--set", value)))


@pytest.mark.parametrize("path", ["fleet.0.file", "fleet.0.up_trace", "data.root"])
def test_a_path_that_no_file_can_have(call: Call, path: str) -> None:
    values = [f'{path}="a\\u0000b"', "data.name=mnist"]
    assert_short(call, "check", "tiny.toml", *(part for value in values for part in ("--set", value)))


@pytest.mark.parametrize(
    ("file", "key"),
    [("phones.csv", "fleet.0.file"), ("link.csv", "fleet.0.up_trace"), ("link.up", "fleet.0.up_trace")],
)
@pytest.mark.parametrize(
    "line", [LONG, DIGITS, f"{LONG},1", f'"{LONG}', f"speed_gflops\n{LONG}", f"at_s,bps\n0,{LONG}"]
)
def test_a_long_line_of_a_file(call: Call, here: Path, file: str, key: str, line: str) -> None:
    (here / file).write_text(f"{line}\n")
    assert_short(call, "check", "tiny.toml", "--set", f"{key}={file}")


@pytest.mark.parametrize(
    "content", [LONG, f"[{LONG}]\n[{LONG}]", f'{LONG} = "', f"{LONG} = 1", f"n = {DIGITS}"]
)
def test_a_long_line_of_a_scenario(call: Call, here: Path, content: str) -> None:
    (here / "long.toml").write_text(content)
    assert_short(call, "check", "long.toml")


@pytest.mark.parametrize(
    "arguments",
    [
        (LONG,),
        (f"--{LONG}",),
        ("check", LONG),
        ("check", "tiny.toml", f"--{LONG}"),
        ("run", "tiny.toml", "--algorithm", LONG),
        ("run", "tiny.toml", "--seed", LONG),
        ("run", "tiny.toml", "--seed", DIGITS),
        ("run", "tiny.toml", "--bus", LONG),
        ("run", "tiny.toml", "--processes", DIGITS),
        ("run", "tiny.toml", "--out", LONG),
        ("compare", "tiny.toml", "--algorithms", LONG),
        ("compare", "tiny.toml", "--algorithms", "fedavg", "--seeds", LONG),
        ("serve", "tiny.toml", "--listen", LONG),
        ("serve", "tiny.toml", "--tokens", LONG),
        ("serve", "tiny.toml", "--wait", LONG),
        ("join", LONG, "--clients", "0"),
        ("join", "http://127.0.0.1:1", "--clients", LONG),
        ("join", "http://127.0.0.1:1", "--clients", DIGITS),
        ("join", "http://127.0.0.1:1", "--clients", "0", "--workers", LONG),
        ("join", "http://127.0.0.1:1", "--clients", "0", "--patience", LONG),
        ("join", "http://127.0.0.1:1", "--clients", "0", "--ca", LONG),
        ("token", "new", "--clients", LONG),
        ("token", "new", "--clients", "0", "--tokens", LONG),
        ("list", LONG),
    ],
    ids=lambda arguments: " ".join(arguments)[:60].replace("x" * 9, ""),
)
def test_a_long_argument(call: Call, arguments: tuple[str, ...]) -> None:
    assert_short(call, *arguments)
