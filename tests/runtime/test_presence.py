"""Clients that go away in the middle of their work: 3 s on devices of 1 FLOP/s, over instant links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange
from fedsim.config import Config
from fedsim.errors import RunError
from fedsim.fleet import Availability, GroupConfig, ServerConfig, build_fleet
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.network.none import PLUGIN as NONE
from fedsim.rng import Key

UNIT = {"speed": "1 FLOP/s", "memory": "1 GB", "overhead": "0 s", "variation": 0.0, "latency": "0 s"}


class Absences(Availability):
    """Clients are there but for given spans, in seconds."""

    def __init__(self, num: int, away: Mapping[int, Sequence[tuple[float, float]]]) -> None:
        super().__init__(num)
        self._away = {k: [(int(a * 1024), int(b * 1024)) for a, b in spans] for k, spans in away.items()}

    def _states(self, clients: Any, tick: int) -> Any:
        gone = [any(a <= tick < b for a, b in self._away.get(int(k), ())) for k in clients]
        return ~np.array(gone, np.bool_)

    def _next(self, client: int, tick: int) -> int | None:
        later = [at for span in self._away.get(client, ()) for at in span if at > tick]
        return min(later, default=None)


def fleet_of(num: int, away: Mapping[int, Sequence[tuple[float, float]]] | None = None, **group: Any) -> Any:
    made = GroupConfig.model_validate({"count": num, "device": "high", **UNIT, **group})
    fleet = build_fleet([made], ServerConfig.model_validate(UNIT), Key.root(0), default_model="linear")
    fleet.availability = Absences(num, away or {})
    return fleet


def play(world: Any, away: Mapping[int, Any], **changes: Any) -> tuple[Any, Any, Any]:
    algorithm = changes.pop("algorithm", None) or world.Scripted()
    group = changes.pop("group", {})
    settings = {"network": NONE(Config()), "sizes": (1, 1), "client_timeout_s": 30.0, **changes}
    fleet = fleet_of(len(settings["sizes"]), away, **group)
    result, trace = world.play(algorithm, fleet=fleet, **settings)
    return algorithm, result, trace


def ends_of(trace: Any, kind: str, client: int) -> list[float]:
    return [record[0] / 1e9 for record in trace if record[1] == kind and record[2] == client]


@pytest.mark.parametrize(("on_leave", "end_s"), [("resume", 7.0), ("restart", 8.0)])
def test_work_goes_on_or_begins_anew_when_its_client_returns(on_leave: str, end_s: float, world: Any) -> None:
    algorithm, result, trace = play(world, {0: [(1, 5)]}, on_leave=on_leave)
    assert ends_of(trace, "job_end", 0) == [end_s]
    assert ends_of(trace, "job_end", 1) == [3.0]
    assert algorithm.noted("merge") == [(1, (0, 1), end_s)]
    assert [record[:3] for record in trace if record[1] in ("leave", "return")] == [
        (1_000_000_000, "leave", 0),
        (5_000_000_000, "return", 0),
    ]
    assert not result.drops


@pytest.mark.parametrize(
    ("on_leave", "compute_s", "away_s", "waiting_s"),
    [("resume", 3, 4, 0), ("restart", 4, 4, 0), ("lost", 1, 0, 29)],
)
def test_an_absence_in_the_middle_of_work_is_a_phase_of_its_own(
    on_leave: str, compute_s: float, away_s: float, waiting_s: float, world: Any
) -> None:
    _, result, _ = play(world, {0: [(1, 5)]}, on_leave=on_leave)
    columns = result.dispatches.columns()
    assert [columns[f"{phase}_s"][0] for phase in ("compute", "away", "waiting")] == [
        compute_s,
        away_s,
        waiting_s,
    ]
    assert [columns[f"{phase}_s"][1] for phase in ("compute", "away", "waiting")] == [3, 0, 0]
    assert columns["outcome"][0] == ("dropped" if on_leave == "lost" else "merged")


def test_who_is_asked_while_away_and_has_nothing_to_do_is_not_away_for_ever(world: Any) -> None:
    # Client 0 answers at once, without work or a frame, but in the end: at 3 s it is away, at 4 s it works.
    work_s = {("warm", 1): 3.0, ("greet", 1): 1.0, ("talk", 0): 3.0}
    algorithm = world.Scripted(
        [Exchange(name, reply=None) for name in ("warm", "greet", "talk")],
        say=lambda server, client: None,
        answer=lambda client, exchange: None,
        work_s=lambda client, exchange: work_s.get((exchange, client.client), 0.0),
    )
    _, result, trace = play(world, {0: [(1, 3.5)]}, algorithm=algorithm)
    columns = result.dispatches.columns()
    names = ("exchange", "asked_at_s", "ended_at_s", "compute_s", "away_s")
    mine = columns["client"] == 0
    assert list(zip(*(columns[name][mine].tolist() for name in names), strict=True)) == [
        ("warm", 0, 0, 0, 0),
        ("greet", 3, 3, 0, 0),
        ("talk", 4, 7, 3, 0),
    ]
    told = [record[:2] for record in trace if record[1] in ("leave", "return")]
    assert told == [(3_000_000_000, "leave"), (3_000_000_000, "return")]


def test_several_absences_add_up(world: Any) -> None:
    _, _, trace = play(world, {0: [(1, 2), (3, 3.5), (100, 200)]})
    assert ends_of(trace, "job_end", 0) == [4.5]


def test_lost_work_is_known_by_its_lease_alone(world: Any) -> None:
    algorithm, result, trace = play(world, {0: [(1, 5)]}, on_leave="lost", rounds=2)
    assert algorithm.noted("merge") == [(1, (1,), 30.0), (2, (0, 1), 33.0)]
    assert result.drops == {"timeout": 1}
    assert [record for record in trace if record[1] == "abandon"] == [
        (1_000_000_000, "abandon", 0, 0, "left")
    ]
    # It never finished its first work, so it begins the second with an empty diary.
    assert [diary.pages for client, _, diary in algorithm.diaries if client == 0] == [(), ()]


def test_nobody_is_asked_while_away(world: Any) -> None:
    algorithm, _, _ = play(world, {0: [(0, 4)]}, rounds=2)
    assert algorithm.noted("merge") == [(1, (1,), 3.0), (2, (1,), 6.0)]


def test_the_server_waits_until_somebody_is_there(world: Any) -> None:
    algorithm, _, _ = play(world, {0: [(0, 6)], 1: [(0, 4)]})
    assert algorithm.noted("merge") == [(1, (1,), 7.0)]


def test_a_fleet_that_never_comes_is_a_clear_end(world: Any) -> None:
    class Never(Absences):
        def _states(self, clients: Any, tick: int) -> Any:
            return np.zeros(len(clients), np.bool_)

    fleet = fleet_of(2)
    fleet.availability = Never(2, {})
    with pytest.raises(RunError, match="no client can take part: at 0 s none of 2 that could be asked"):
        world.play(world.Scripted(), fleet=fleet, sizes=(1, 1))


@pytest.mark.parametrize(("on_leave", "end_s", "frames"), [("resume", 1.5 + 4, 1), ("restart", 5 + 1.5, 2)])
def test_transfers_stand_still_too(on_leave: str, end_s: float, frames: int, world: Any) -> None:
    # A first run tells how long the frame is; the link then takes 1.5 s for it.
    _, result, _ = play(world, {})
    bits = 8 * int(result.ledger.columns()["bytes"][0])
    group = {"down": f"{bits / 1.5} bit/s", "up": "1 Gbit/s"}
    _, result, trace = play(world, {0: [(1, 5)]}, on_leave=on_leave, network=NAIVE(Config()), group=group)
    down = [r for r in trace if r[1] == "transfer_end" and r[2] == 0 and r[4] is False]
    assert down[-1][0] / 1e9 == pytest.approx(end_s, abs=2e-9)
    assert len(down) == frames
    columns = result.ledger.columns()
    mine = (columns["client"] == 0) & ~columns["up"]
    assert columns["outcome"][mine].tolist() == ["lost", "delivered"][-frames:]


def test_a_lost_client_loses_its_transfers(world: Any) -> None:
    _, result, _ = play(world, {})
    bits = 8 * int(result.ledger.columns()["bytes"][0])
    group = {"down": f"{bits / 1.5} bit/s", "up": "1 Gbit/s"}
    _, result, trace = play(world, {0: [(1, 5)]}, on_leave="lost", network=NAIVE(Config()), group=group)
    assert result.ledger.outcomes()["lost"] == 1
    assert [r[3:] for r in trace if r[1] == "transfer_end" and r[2] == 0] == [(0, False, "lost", "left")]
    assert result.drops == {"timeout": 1}


def test_devices_drop_out_at_a_constant_hazard(world: Any) -> None:
    rounds, hazard_per_s, work_s = 40, 0.1, 3.0
    _, result, trace = play(
        world, {}, group={"drop_out": f"{hazard_per_s} /s"}, rounds=rounds, sizes=(1,) * 5
    )
    lost = sum(record[1] == "abandon" for record in trace)
    assert lost == result.drops["timeout"]
    expected = rounds * 5 * (1 - np.exp(-hazard_per_s * work_s))  # 52 of 200
    assert abs(lost - expected) < 4 * np.sqrt(expected)


def test_comings_and_goings_repeat_themselves(world: Any) -> None:
    away = {0: [(1, 5)], 1: [(2, 2.5), (7, 9)]}
    runs = [
        play(world, away, on_leave=on_leave, rounds=3, group={"drop_out": "0.05 /s"})[1].trace_hash
        for on_leave in ("resume", "resume", "restart")
    ]
    assert runs[0] == runs[1] != runs[2]
