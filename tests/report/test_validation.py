"""Predictions held against runs: here of folders of simulations, which stand for runs over sockets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsim
from fedsim.errors import OutputError
from fedsim.report import validation
from fedsim.report.read_results import read_object, to_json
from fedsim.report.validation import Validation, _tau, compare, ranking
from fedsim.runtime.records.dispatch_phases import PHASES

AT_ONCE = {"latency": "0 s", "overhead": "0 s"}
SCENARIO: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 3},
    "data": {"limit": 120, "global_test": 0.2},
    "models": {"linear": {}},
    "network": {"model": "fluid"},
    "engine": {"workers": 1},
    "fleet": [
        {
            "count": 2,
            "device": "low",
            "up": "1 Mbit/s",
            "down": "1 Mbit/s",
            "latency": "0 s",
            "overhead": "0 s",
        },
        {
            "count": 2,
            "device": "low",
            "up": "2 Mbit/s",
            "down": "2 Mbit/s",
            "latency": "0 s",
            "overhead": "0 s",
        },
    ],
}
HOST = {"speed_up": 2.0, "num_dispatches": 10, "num_late": 0, "worst": 0.01, "late_s": 1e-4}
Simulate = Callable[..., Path]


@pytest.fixture(scope="session")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Return what simulates with rates of all links times a factor, and says that a host did it."""
    made: dict[str, Path] = {}

    def run(factor: float = 1.0, algorithm: str = "fedavg", **tables: Any) -> Path:
        key = str((factor, algorithm, tables))
        if key not in made:
            fleet = [
                {
                    **group,
                    **{way: f"{float(group[way].split()[0]) * factor} Mbit/s" for way in ("up", "down")},
                }
                for group in SCENARIO["fleet"]
            ]
            place = tmp_path_factory.mktemp("validated") / "run"
            made[key] = fedsim.run(
                {**SCENARIO, "fleet": fleet, **tables}, algorithm=algorithm, out=place
            ).folder
        return made[key]

    return run


@pytest.fixture
def emulated(tmp_path: Path) -> Callable[..., Path]:
    """Return what copies a folder, and lets its summary say how late the host was."""

    def copy(folder: Path, **host: Any) -> Path:
        new = tmp_path / f"emulated{len(list(tmp_path.iterdir()))}"
        new.mkdir()
        for file in folder.iterdir():
            if file.is_file():
                (new / file.name).write_bytes(file.read_bytes())
        summary = read_object(folder / "summary.json")
        (new / "summary.json").write_bytes(to_json({**summary, "emulation": {**HOST, **host}}))
        return new

    return copy


def made(**changes: Any) -> Validation:
    """Return a validation of a run of ten seconds that agrees."""
    arrivals = np.array([[1.0, 2.0], [1.0, 2.0]])
    base = Validation(
        *("fedavg", 10.0, 10.0, np.zeros(3), np.array([0, 1]), arrivals),
        *({"compute": (1.0, 1.0)}, np.zeros(2), 1.0, 0, (100, 100)),
        has_same_models=True,
        needs_same_models=True,
        num_rounds=(3, 3),
        emulation=HOST,
    )
    return replace(base, **changes)


# Two folders


def test_a_run_agrees_with_itself_exactly(simulate: Simulate, emulated: Callable[..., Path]) -> None:
    folder = simulate()
    found = compare(folder, emulated(folder))
    assert (found.algorithm, found.error, found.tau, found.num_unmatched) == ("fedavg", 0.0, 1.0, 0)
    assert found.round_errors.tolist() == [0, 0, 0]
    assert found.compute_errors.tolist() == [0] * 12
    assert found.clients.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert (found.arrivals[0] == found.arrivals[1]).all()
    assert list(found.phases) == list(PHASES)
    assert all(predicted == real for predicted, real in found.phases.values())
    assert found.num_bytes[0] == found.num_bytes[1] > 0
    assert (found.has_same_models, found.needs_same_models) == (True, True)
    assert found.emulation == HOST
    assert (list(found.disagreements()), found.verdict(), found.advice()) == ([], "agrees", None)
    assert list(validation.remarks([found])) == []
    alone = compare(folder, folder)  # as of a run without emulation
    assert (alone.emulation, alone.late, alone.verdict()) == (None, 0.0, "agrees")


def test_links_that_are_slower_than_predicted_disagree(
    simulate: Simulate, emulated: Callable[..., Path]
) -> None:
    found = compare(simulate(), emulated(simulate(0.8)))
    assert found.error > 0.05
    assert (found.round_errors > 0.05).all()
    assert found.round_error(0.5) == pytest.approx(float(np.median(found.round_errors)))
    assert (found.arrivals[1] > found.arrivals[0]).all()
    for phase in ("download", "upload"):
        predicted, real = found.phases[phase]
        assert real == pytest.approx(predicted / 0.8, rel=0.01)
    assert found.compute_errors == pytest.approx(np.zeros(12), abs=1e-9)
    assert found.num_bytes[0] == found.num_bytes[1]
    assert found.has_same_models
    median, late = found.disagreements()
    assert median == f"rounds: median error {100 * found.round_error(0.5):.1f} %, at most 2.0 %"
    assert late == f"rounds: 95th error {100 * found.round_error(0.95):.1f} %, at most 5.0 %"
    assert found.verdict() == "disagrees"
    assert list(validation.remarks([found])) == [f"fedavg: {median}", f"fedavg: {late}"]


def test_links_that_are_a_little_slower_agree(simulate: Simulate, emulated: Callable[..., Path]) -> None:
    found = compare(simulate(), emulated(simulate(0.995)))
    assert 0 < found.error < 0.01
    assert found.verdict() == "agrees"


def test_the_error_of_a_faster_run_is_negative_and_its_share_is_by_its_prediction(
    simulate: Simulate, emulated: Callable[..., Path]
) -> None:
    slower = compare(simulate(), emulated(simulate(0.8)))
    faster = compare(simulate(0.8), emulated(simulate()))
    assert faster.error < 0
    assert (1 + faster.error) * (1 + slower.error) == pytest.approx(1)
    assert faster.verdict() == "disagrees"


def test_dispatches_in_one_of_both_alone_are_counted(
    simulate: Simulate, emulated: Callable[..., Path]
) -> None:
    short = {"run": {"name": "tiny", "rounds": 2}}
    found = compare(simulate(), emulated(simulate(**short)))
    assert (len(found.round_errors), len(found.clients), found.num_unmatched) == (2, 8, 4)
    assert list(found.disagreements()) == ["rounds: 3 predicted, 2 real"]
    assert not found.needs_same_models  # others were asked


def test_no_reply_in_common_is_an_error(simulate: Simulate, tmp_path: Path) -> None:
    none = simulate(participation={"client_timeout": "1 ms"}, run={"name": "tiny", "rounds": 2})
    with pytest.raises(OutputError, match=r"have no reply in common: nothing can be compared"):
        compare(simulate(), none)


def test_a_buffered_run_need_not_have_the_same_models(
    simulate: Simulate, emulated: Callable[..., Path]
) -> None:
    pacing = {"participation": {"pacing": {"name": "buffered", "params": {"buffer": 2, "concurrency": 3}}}}
    folder = simulate(algorithm="fedbuff", **pacing)
    found = compare(folder, emulated(folder))
    assert not found.needs_same_models
    assert found.verdict() == "agrees"


def test_the_file_of_a_validation_names_its_runs(simulate: Simulate, tmp_path: Path) -> None:
    for name in ("simulated", "emulated"):
        (tmp_path / name).symlink_to(simulate())
    validation.write(tmp_path, {"fedavg": ("simulated", "emulated")})
    assert validation.runs(tmp_path) == ["simulated", "emulated"]
    (found,) = validation.read(tmp_path)
    assert found.verdict() == "agrees"
    (tmp_path / "validation.json").write_text('{"fedavg": ["simulated"]}')
    with pytest.raises(OutputError, match="these results are not whole"):
        validation.read(tmp_path)


# Verdicts


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({}, "agrees", []),
        ({"round_errors": np.array([0.0199, -0.0199, 0.04])}, "agrees", []),
        (
            {"round_errors": np.array([0.021, -0.021, 0.0])},
            "disagrees",
            ["rounds: median error 2.1 %, at most 2.0 %"],
        ),
        ({"round_errors": np.array([0.0] * 9 + [-0.5])}, "disagrees", ["rounds: 95th error"]),
        ({"num_bytes": (100, 99)}, "disagrees", ["bytes: 100 predicted, 99 sent"]),
        ({"has_same_models": False}, "disagrees", ["the models at the end are others"]),
        ({"has_same_models": False, "num_bytes": (1, 2), "needs_same_models": False}, "agrees", []),
        ({"compute_errors": np.ones(2)}, "agrees", []),  # that of rounds says it
        ({"emulation": None, "round_errors": np.ones(3)}, "agrees", []),
        ({"emulation": None, "compute_errors": np.array([0.1, 0.15, 2])}, "agrees", []),
        (
            {"emulation": None, "compute_errors": np.array([0.1, 0.16, 2])},
            "disagrees",
            ["computing: median error 16.0 %, at most 15.0 %"],
        ),
        ({"emulation": None, "compute_errors": np.empty(0)}, "agrees", []),
        ({"round_errors": np.empty(0)}, "agrees", []),
        ({"emulation": {**HOST, "num_late": 1}, "round_errors": np.ones(3)}, "no verdict", None),
        ({"emulation": {**HOST, "num_dispatches": 20, "num_late": 1}}, "agrees", []),  # 5 % may be
        ({"emulation": {**HOST, "num_dispatches": 0}}, "agrees", []),
        # Of the second that all dispatches took.
        ({"emulation": {**HOST, "late_s": 0.02}, "has_same_models": False}, "disagrees", ["the models"]),
        ({"emulation": {**HOST, "late_s": 0.021}, "has_same_models": False}, "no verdict", None),
    ],
)
def test_what_agrees(changes: Mapping[str, Any], verdict: str, said: list[str] | None) -> None:
    one = made(**changes)
    assert one.verdict() == verdict
    if said is not None:
        for words, found in zip(said, one.disagreements(), strict=True):
            assert found.startswith(words)


@pytest.mark.parametrize(
    ("worst", "speed_up", "advised"), [(0.1, 1.0, "0.5"), (0.2, 4.0, "1"), (3.0, 1.0, "0.02"), (0.06, 8, "4")]
)
def test_where_the_host_was_late_a_slower_pace_is_advised(
    worst: float, speed_up: float, advised: str
) -> None:
    host = {"speed_up": speed_up, "num_dispatches": 10, "num_late": 3, "worst": worst, "late_s": 0.01}
    one = made(emulation=host, has_same_models=False)
    assert (one.late, one.is_late, one.verdict()) == (0.3, True, "no verdict")
    (remark,) = validation.remarks([one])
    assert remark == one.advice()
    assert "fedavg: the host was late with 3 of 10 dispatches, with the worst by " in remark
    assert f"by 1.0 % of all their time, so nothing can be said: give --speed-up {advised}, end" in remark


@pytest.mark.parametrize("worst", [0.01, 0.0])  # hooks of the server may be late where no dispatch is
def test_a_host_that_is_a_little_late_each_time_is_too_slow_too(worst: float) -> None:
    (remark,) = validation.remarks([made(emulation={**HOST, "worst": worst, "late_s": 0.1})])
    assert "by 10.0 % of all their time, so nothing can be said: give --speed-up 0.4, end other" in remark


def test_the_answer_is_a_sentence_and_tables() -> None:
    all_of_them = [
        made(),
        made(algorithm="fedmd", real_s=12.0, has_same_models=False),
        made(algorithm="slow", emulation={**HOST, "num_late": 9}),
    ]
    said = validation.sentence(all_of_them)
    assert said.startswith("1 of 3 predictions agreed, and of 1 nothing can be said.")
    assert said.endswith("The largest error of a run's time is +20.00 % (fedmd).")
    answer, phases = validation.tables(all_of_them)
    rows = [dict(zip(answer.headings, row, strict=True)) for row in answer.rows]
    assert [row["verdict"] for row in rows] == ["agrees", "disagrees", "no verdict"]
    assert [row["models"] for row in rows] == ["equal", "differ", "equal"]
    assert rows[1]["error"] == "+20.00 %"
    assert rows[2]["late"] == "90.0 %"
    assert [row[:2] for row in phases.rows] == [
        (name, "compute") for name in ("fedavg", "fedmd", "slow")
    ]  # phases that take time


# The order of algorithms, and of replies


def timed(*seconds: tuple[float, float]) -> list[Validation]:
    return [made(predicted_s=predicted, real_s=real) for predicted, real in seconds]


@pytest.mark.parametrize(
    ("runs", "tau", "num_pairs"),
    [
        ([(10, 11)], 1.0, 0),
        ([(10, 1), (10.4, 0.5)], 1.0, 0),  # less than 5 % apart: either order will do
        ([(10, 10), (11, 12)], 1.0, 1),
        ([(10, 10), (11, 9)], -1.0, 1),
        ([(10, 10), (20, 20), (30, 15)], pytest.approx(1 / 3), 3),
        ([(10, 10), (10.1, 3), (30, 9)], 0.0, 2),
    ],
)
def test_algorithms_that_are_apart_are_ranked(
    runs: Sequence[tuple[float, float]], tau: float, num_pairs: int
) -> None:
    assert ranking(timed(*runs)) == (tau, num_pairs)
    notes = " ".join(validation.tables(timed(*runs))[0].notes)
    assert ("ranking of algorithms by time" in notes) == bool(num_pairs)


def test_tau_counts_pairs_of_one_round_whose_predicted_instants_differ() -> None:
    rounds = np.array([1, 1, 1, 2, 2])
    predicted = np.array([1.0, 2.0, 2.0, 5.0, 6.0])
    # 1: two pairs that differ, of which one is turned around; 2: one pair, as predicted.
    assert _tau(rounds, predicted, np.array([3.0, 4.0, 2.0, 1.0, 2.0])) == pytest.approx(1 / 3)
    assert _tau(rounds, np.ones(5), np.arange(5.0)) == 1.0


@given(st.lists(st.integers(0, 30), min_size=2, max_size=12, unique=True), st.randoms())
def test_tau_is_that_of_kendall(predicted: list[int], random: Any) -> None:
    from scipy.stats import kendalltau

    real = list(range(len(predicted)))
    random.shuffle(real)
    found = _tau(np.ones(len(real)), np.array(predicted, float), np.array(real, float))
    assert found == pytest.approx(kendalltau(predicted, real).statistic)
