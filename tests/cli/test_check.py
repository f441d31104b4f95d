import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fedsim import portable_numerics
from fedsim.cli.check import is_study_file
from fedsim.errors import InvariantError
from fedsim.planning import real_time
from tests.cli.conftest import Call


def test_a_check_shows_what_a_scenario_comes_to_and_writes_nothing(call: Call, here: Path) -> None:
    result = call("check", "tiny.toml")
    assert result.exit_code == 0, result.output
    for words in (
        "Fleet: 4 clients",
        "Data: samples of a client",
        "Models",
        "Computing",
        "Frames in 2 rounds",
    ):
        assert words in result.stdout
    assert "650" in result.stdout
    assert [path.name for path in here.iterdir()] == ["tiny.toml"]


def test_a_check_takes_another_algorithm_and_values(call: Call) -> None:
    result = call("check", "tiny.toml", "--algorithm", "fedmd", "--set", "run.rounds=50")
    assert result.exit_code == 0, result.output
    assert "tiny, fedmd, 50 rounds" in result.stdout
    assert "logits_up" in result.stdout
    assert "  50 rounds  about" in result.stdout


PRESENCE = "fleet.0.availability={name = 'duty_cycle', params = {on_share = 0.9}}"
UNSEEN = "and availability 'duty_cycle' changes over 1 d: hardly any of that is seen"


def settings(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            ["participation.client_timeout=1 ms"],
            "4 of 4 dispatches were dropped: timeout, see participation.client_timeout",
        ),
        (
            ["participation.pacing.params.over_selection=2", "participation.clients_per_round=2"],
            "2 of 4 dispatches were dropped: too late\n",
        ),
        ([PRESENCE], UNSEEN),
        (["fleet.0.load={distribution = 'exponential'}"], "loads of devices were drawn for these rounds"),
        (
            ["fleet=[{count = 3, memory = '10 kB'}, {count = 1, name = 'roomy'}]"],
            "mid: 3 clients never selected: 'linear' needs 14.9 kB of memory, they have 10 kB at most",
        ),
    ],
)
def test_what_a_user_has_to_know_is_told(call: Call, values: list[str], said: str) -> None:
    result = call("check", "tiny.toml", *settings(*values))
    assert result.exit_code == 0, result.output
    assert said in result.stdout
    assert said not in call("check", "tiny.toml").stdout


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (['codec.up.models={ chain = ["int8"], least = "1 B" }'], r"update\+coded +up .*\n"),
        (['codec.up.models={ chain = ["int8"], least = "1 B" }'], r"  without codecs +[0-9.]+ m?s, .* up, "),
        (['codec.up.models={ chain = ["zstd"] }'], r"  a round +at most [0-9.]+ m?s"),
        (['codec.up.models={ chain = ["zstd"] }'], "at most: how much zstd shortens a frame depends on"),
        (['codec.up.logits={ chain = ["int8"] }'], r"codec\.up\.logits: nothing that it could code was sent"),
    ],
)
def test_what_codecs_come_to_is_told(call: Call, values: list[str], said: str) -> None:
    result = call("check", "tiny.toml", *settings(*values))
    assert result.exit_code == 0, result.output
    assert re.search(said, result.stdout), result.stdout
    assert "codec.up.models: nothing" not in result.stdout
    assert not re.search(said, call("check", "tiny.toml").stdout)


LOSS = '{ kind = "loss", probability = 0.25, groups = ["high"], at = "1 s", for = "2 s", every = "1 h" }'
LATE = '{ kind = "delay", probability = 0.5, delay = "3 s", direction = "up" }'
SLOW = '{ kind = "slow", probability = 0.25, factor = 4, at = "1 s" }'
RETRY = 'participation.retry={ times = 2, after = "1 s" }'


def test_what_faults_come_to_is_told(call: Call) -> None:
    result = call("check", "tiny.toml", *settings(f"faults=[{LOSS}, {LATE}]", RETRY))
    assert result.exit_code == 0, result.output
    assert re.search(r"loss +4 +from 1 s on, for 2 s, every 1 h +2 of 8 frames of a round\n", result.stdout)
    assert re.search(r"delay of 3 s +4 +always +2 of 4 frames of a round\n", result.stdout)
    assert "a round waits for participation.client_timeout = 1 h if a reply does not come" in result.stdout
    assert "Cost without faults" in result.stdout
    slow = call("check", "tiny.toml", *settings(f"faults=[{SLOW}]"))
    assert re.search(r"slow, by a factor of 4 +4 +from 1 s on +1 clients at once\n", slow.stdout)
    harmless = call("check", "tiny.toml", *settings(f"faults=[{LATE}]"))
    assert "a round waits" not in harmless.stdout


@pytest.mark.parametrize(
    ("fault", "is_told"), [(SLOW, True), (LATE, True), (LOSS, False), (SLOW.replace("0.25", "0"), False)]
)
def test_work_that_is_fitted_into_a_deadline_without_regard_to_faults_is_told(
    fault: str, is_told: bool, call: Call
) -> None:
    workload = 'participation.workload={ name = "deadline_fitted", params = { deadline = "30 s" } }'
    result = call("check", "tiny.toml", *settings(f"faults=[{fault}]", workload))
    said = "participation.workload fits work into 30 s as if there were no faults: replies may come later"
    assert result.exit_code == 0, result.output
    assert (said in result.stdout) == is_told
    assert said not in call("check", "tiny.toml", *settings(f"faults=[{fault}]")).stdout


def test_availability_that_matters_in_the_whole_run_is_not_told(call: Call) -> None:
    longer = settings(PRESENCE, "participation.pacing.params.interval=2 h", "run.rounds=5")
    assert UNSEEN not in call("check", "tiny.toml", *longer).stdout


def test_a_model_that_no_client_can_hold_is_a_fault(call: Call) -> None:
    result = call("check", "tiny.toml", *settings("fleet=[{count = 4, memory = '10 kB'}]"))
    assert result.exit_code == 2
    assert "needs 14.9 kB, the largest device has 10 kB; take a smaller model or batch" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["check", "tiny.toml", "--set", "data.public.size=0"], ["check", "no.toml"]]
)
def test_faults_exit_with_2(call: Call, arguments: list[str]) -> None:
    result = call(*arguments, "--algorithm", "fedmd")
    assert result.exit_code == 2
    assert result.stderr.startswith("fedsim: ")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (
            "fleet.0.availability={name = 'trace', params = {file = 'never.csv', step = '1 h'}}",
            "no client can take part: at 0 s none of 4 that could be asked is available, and none will be",
        ),
        (
            "participation.pacing.params={min_replies = 5, on_failure = 'stop'}",
            "a round had fewer than min_replies = 5 replies",
        ),
    ],
)
def test_a_scenario_whose_rehearsal_fails_is_at_fault(
    call: Call, here: Path, setting: str, problem: str
) -> None:
    (here / "never.csv").write_text("0,0,0\n")
    result = call("check", "tiny.toml", "--set", setting)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"fedsim: tiny.toml: its rehearsal failed: {problem}")
    assert "the run failed" not in result.stderr
    # A run that has begun has failed.
    assert call("run", "tiny.toml", "--quiet", "--set", setting).exit_code == 1


def test_a_bug_in_a_rehearsal_is_no_fault_of_the_scenario(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(parts: object) -> None:
        raise InvariantError("a frame was counted twice")

    monkeypatch.setattr("fedsim.cli.check.rehearse", broken)
    result = call("check", "tiny.toml")
    assert result.exit_code == 1
    assert result.stderr == "fedsim: the run failed: a frame was counted twice\n"


def test_real_time_is_forecast(call: Call) -> None:
    result = call("check", "tiny.toml")
    assert re.search(r"\n  real time +about \d.*\n", result.stdout)
    assert "a forecast from a few jobs, done on this machine now" in result.stdout
    budget = "run.until={accuracy = 0.9}"
    said = call("check", "tiny.toml", "--set", budget, "--set", "run.rounds=9").stdout
    assert re.search(r"real time +about", said)


def test_a_job_that_fails_when_it_is_tried_is_told(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(parts: object, rehearsal: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("fedsim.planning.real_time.forecast", broken)
    result = call("check", "tiny.toml")
    assert result.exit_code == 0, result.output
    assert "real time  unknown, since a job failed when it was tried: oh" in result.stdout
    (here / "mine.toml").write_text(STUDY)
    result = call("check", "mine.toml", "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "real time, 1 at once  unknown, since a job failed when it was tried: oh" in result.stdout


STUDY = """
base = "tiny.toml"
seeds = [0, 1, 2]
[[variant]]
algorithm = "fedavg"
[[variant]]
algorithm = "local"
[grid]
"training.batch_size" = [8, 16]
"""


def test_a_study_is_checked_too(call: Call, here: Path) -> None:
    (here / "mine.toml").write_text(STUDY + '[tune]\nseeds = [9]\n"training.lr" = [0.1, 0.2]\n')
    result = call("check", "mine.toml", "--jobs", "3")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "mine.toml: mine, a study: 2 variants, 2 points of the grid, 3 seeds"
    assert any(line.split()[:3] == ["fedavg", "8", "2"] for line in lines)
    assert "  with the first values of training.lr" in lines
    assert re.search(
        r"\n  trials, of the tuning +8\n  runs +12\n  real time, 3 at once +about ", result.stdout
    )
    assert sorted(path.name for path in here.iterdir()) == ["mine.toml", "tiny.toml"]


def test_it_says_how_many_variants_of_a_study_were_tried(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time, "MAX_POINTS_S", 0.0)
    (here / "mine.toml").write_text(STUDY)
    said = "rehearsed: 2 of 4 variants at points of the grid; the others are taken to be like these"
    assert said in call("check", "mine.toml").stdout


def test_paths_of_a_grid_that_end_alike_are_told_apart(call: Call, here: Path) -> None:
    grid = STUDY.partition("[grid]")[0] + '[grid]\n"fleet.0.up" = ["1 Mbit/s"]\n"server.up" = ["1 Gbit/s"]\n'
    (here / "mine.toml").write_text(grid)
    result = call("check", "mine.toml")
    assert result.exit_code == 0, result.output
    assert re.search(r"fleet\.0\.up +server\.up", result.stdout)


def test_a_study_that_lacks_its_variants_is_checked_as_one(call: Call, here: Path) -> None:
    (here / "mine.toml").write_text('base = "tiny.toml"\n')
    result = call("check", "mine.toml")
    assert result.exit_code == 2
    assert result.stderr.startswith("fedsim: mine.toml: 1 fault\n  variant: it is missing")


def test_a_study_without_a_number_of_rounds(call: Call, here: Path) -> None:
    (here / "mine.toml").write_text("set = { run = { until = { accuracy = 0.9 } } }\n" + STUDY)
    result = call("check", "mine.toml", "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "real time, 1 at once  as long as it takes to reach the accuracy" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mine.toml", "--set", "training.lr=1"), "leave out --set and --algorithm"),
        (("mine.toml", "--algorithm", "local"), "leave out --set and --algorithm"),
        (("tiny.toml", "--jobs", "2"), "--jobs is for studies"),
        (("wrong.toml",), 'grid."training.lrr": no key is called'),
        (("broken.toml",), "broken.toml: its rehearsal failed"),
        (
            ("misfit.toml",),
            "misfit.toml, variant fedavg: 1 fault\n  participation.pacing.params.concurrency: 2",
        ),
    ],
)
def test_mistakes_in_the_check_of_a_study(
    call: Call, here: Path, arguments: tuple[str, ...], said: str
) -> None:
    (here / "mine.toml").write_text(STUDY)
    (here / "wrong.toml").write_text(STUDY + '"training.lrr" = [1]\n')
    fails = "set = { 'participation.pacing.params' = { min_replies = 5, on_failure = 'stop' } }\n"
    (here / "broken.toml").write_text(fails + STUDY)
    buffered = "set = { 'participation.pacing' = { name = 'buffered', params = { concurrency = 2 } } }\n"
    (here / "misfit.toml").write_text(buffered + STUDY)
    result = call("check", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_example_of_a_study_is_known_by_its_name(call: Call) -> None:
    assert is_study_file(Path("first_to_reach"))
    assert is_study_file(Path("studies/first_to_reach"))
    assert not is_study_file(Path("quickstart"))
    assert not is_study_file(Path("nowhere.toml"))


def test_who_cannot_hold_the_job_is_told(call: Call, here: Path) -> None:
    group = '[[fleet]]\ncount = 2\nmemory = "1 kB"\n'
    (here / "tiny.toml").write_text((here / "tiny.toml").read_text() + group)
    said = "2 of 6 clients, too little memory to hold their job: 4, 5"
    assert f"  never selected: {said}" in call("check", "tiny.toml").stdout
    result = call("run", "tiny.toml", "--quiet")
    assert re.search(rf"ineligible +{said}", result.stdout)


def test_the_schema_is_json(call: Callable[..., Result]) -> None:
    result = call("schema")
    assert result.exit_code == 0
    assert "fleet" in json.loads(result.stdout)["properties"]


def test_a_deadline_that_no_client_can_meet_is_a_fault_of_the_scenario(call: Call) -> None:
    workload = "participation.workload={{name = 'deadline_fitted', params = {{deadline = '{}'}}}}"
    result = call("check", "tiny.toml", "--set", workload.format("1 µs"))
    assert result.exit_code == 2
    said = re.sub(r"\s+", " ", result.stderr)
    assert "participation.workload.params.deadline: no client can do min_steps = 1 and reply in 1 µs" in said
    assert "give a longer deadline, smaller batches" in said
    assert call("check", "tiny.toml", "--set", workload.format("1 h")).exit_code == 0


def test_small_jobs_hardly_pay_on_a_cluster(call: Call) -> None:
    pytest.importorskip("ray")
    said = "jobs of less than 50 ms hardly pay on other machines"
    assert said in call("check", "tiny.toml", "--set", "engine.executor=ray").stdout
    assert said not in call("check", "tiny.toml").stdout


UNLIKE = 'fedprox has weighting = "samples" (fedavg: "uniform"): fedprox is a subclass of fedavg'


def test_parameters_of_a_parent_that_do_not_apply_are_told(call: Call, here: Path) -> None:
    (here / "tiny.toml").write_text(
        (here / "tiny.toml").read_text() + '[algorithms.fedavg]\nweighting = "uniform"\n'
    )
    assert UNLIKE in call("check", "tiny.toml", "--algorithm", "fedprox").stdout
    assert UNLIKE not in call("check", "tiny.toml", "--algorithm", "fedavg").stdout
    study = 'base = "tiny.toml"\n[[variant]]\nalgorithm = "fedavg"\n[[variant]]\nalgorithm = "fedprox"\n'
    (here / "mine.toml").write_text(study)
    assert UNLIKE in call("check", "mine.toml").stdout


def test_portable_numbers_are_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable_numerics, "require", lambda: None)
    assert "numbers are portable" not in call("check", "tiny.toml").stdout
    monkeypatch.setattr("fedsim.cli.check.mkl_remark", str)
    assert "numbers are portable" in call("check", "tiny.toml", "--set", "engine.numerics=portable").stdout
