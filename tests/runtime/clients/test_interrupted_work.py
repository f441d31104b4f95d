"""Clients that go away in the middle of their work: 3 s on devices of 1 FLOP/s, over instant links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim import clock
from fedsim.algorithms.base import Exchange
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.errors import RunError
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.network.none import PLUGIN as NONE
from fedsim.rng import Key
from fedsim.runtime.clients.interrupted_work import Churn
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from tests.runtime.conftest import absent

S = 1_000_000_000
UNIT = {"speed": "1 FLOP/s", "memory": "1 GB", "overhead": "0 s", "variation": 0.0, "latency": "0 s"}


def fleet_of(num: int, away: Mapping[int, Sequence[tuple[float, float]]] | None = None, **group: Any) -> Any:
    made = GroupConfig.model_validate({"count": num, "device": "high", **UNIT, **group})
    fleet = build_fleet([made], ServerConfig.model_validate(UNIT), Key.root(0), default_model="linear")
    return absent(fleet, away or {})


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
    assert result.drops == result.rounds[0].drops == {"left": 1}
    assert [record for record in trace if record[1] == "drop"] == [(30_000_000_000, "drop", 0, 0, "left")]
    causes = {cause: dropped.tolist() for cause, dropped in result.dispatches.causes().items()}
    assert causes == {"left": [True, False, False, False]}
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
    fleet = fleet_of(2, {0: [(0, inf)], 1: [(0, inf)]})
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
    assert result.drops == {"left": 1}


def test_devices_drop_out_at_a_constant_hazard(world: Any) -> None:
    rounds, hazard_per_s, work_s = 40, 0.1, 3.0
    _, result, trace = play(
        world, {}, group={"drop_out": f"{hazard_per_s} /s"}, rounds=rounds, sizes=(1,) * 5
    )
    lost = sum(record[1] == "abandon" for record in trace)
    assert result.drops == {"dropped out": lost}
    expected = rounds * 5 * (1 - np.exp(-hazard_per_s * work_s))  # 52 of 200
    assert abs(lost - expected) < 4 * np.sqrt(expected)


@pytest.mark.parametrize("say", [None, lambda server, client: None], ids=["a frame", "no frame"])
def test_whoever_is_asked_while_away_does_nothing_where_that_is_lost(say: Any, world: Any) -> None:
    # Client 0 is no candidate at 0 s, but the second exchange, at 3 s, is with everyone.
    exchanges = [Exchange("talk", reply=world.Word), Exchange("echo", who="all", reply=world.Word)]
    algorithm = world.Scripted(exchanges, **({} if say is None else {"say": say}))
    _, result, trace = play(world, {0: [(0, 4)]}, algorithm=algorithm, on_leave="lost")
    assert algorithm.noted("merge", "echo") == [(1, (1,), 33.0)]
    assert [who for _, who, _ in algorithm.noted("local", "echo")] == [1]
    assert result.drops == {"left": 1}
    assert [record for record in trace if record[2] == 0 and record[1] not in ("merge", "round_end")] == [
        (3_000_000_000, "dispatch", 0, 0, 1, "echo", 0),
        (3_000_000_000, "abandon", 0, 0, "left"),
        (33_000_000_000, "drop", 0, 0, "left"),
    ]
    assert 0 not in result.ledger.columns()["client"]


def test_who_has_left_meanwhile_is_lost_to_the_second_exchange_too(world: Any) -> None:
    exchanges = [Exchange("talk", reply=world.Word), Exchange("echo", who="answered", reply=world.Word)]

    async def merge(exchange: str, server: Any, state: Any, replies: Any) -> Any:
        await server.call(world.nothing, flops=10.0)
        return state

    algorithm = world.Scripted(exchanges, merge=merge)
    _, result, _ = play(world, {0: [(8, 90)]}, algorithm=algorithm, on_leave="lost")
    assert algorithm.noted("local", "echo") == [(1, 1, 13.0)]
    assert result.drops == {"left": 1}


def abandoned_s(world: Any, away: Sequence[tuple[float, float]], **changes: Any) -> float:
    """Return when the one client that works for 200 s drops out, having been away."""
    slow = world.Scripted(
        changes.pop("exchanges", [Exchange("talk", reply=world.Word)]),
        work_s=lambda client, exchange: 200.0 if client.client == 0 else 1.0,
        **changes.pop("hooks", {}),
    )
    group = {"drop_out": "0.02 /s"}
    settings = {"algorithm": slow, "group": group, "client_timeout_s": 1000.0, **changes}
    _, _, trace = play(world, {0: away}, **settings)
    return float(next(record[0] for record in trace if record[1] == "abandon" and record[2] == 0)) / 1e9


@pytest.mark.parametrize("on_leave", ["resume", "restart"])
def test_nobody_drops_out_while_away(on_leave: str, world: Any) -> None:
    at_s = abandoned_s(world, [], sizes=(1,))
    assert 8 < at_s < 200
    away = [(1, 1 + 5 * at_s), (8 + 5 * at_s, 12 + 5 * at_s)]
    lasted_s = sum(int(b * 1024) - int(a * 1024) for a, b in away) / 1024
    later_s = abandoned_s(world, away, sizes=(1,), on_leave=on_leave)
    assert later_s == pytest.approx(at_s + lasted_s, abs=1e-8)


def test_nor_on_account_of_what_it_is_asked_meanwhile(world: Any) -> None:
    # Client 0 leaves at 1 s; at 2 s it is given up for the first exchange, and asked in the second.
    async def instruct(exchange: str, server: Any, state: Any, cohort: Sequence[int]) -> Any:
        return state, {client: world.word() for client in cohort if server.round == 1}

    settings = {
        "exchanges": [Exchange("talk", reply=world.Word), Exchange("echo", who="all", reply=world.Word)],
        "hooks": {"instruct": instruct},
        "pacing": SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "2 s", "interval": "100 s"})),
        "rounds": 3,
        "sizes": (1, 1),
    }
    short_s, long_s = (abandoned_s(world, [(1, until)], **settings) for until in (11, 71))
    assert 11 < short_s == pytest.approx(long_s - 60, abs=1e-8)


def staying(fleet: Any, at_s: float, of: Mapping[tuple[int, int], Sequence[int]]) -> list[list[bool]]:
    """Return who stays, by client and dispatch, from a time until each of some instants, ns."""

    async def main() -> list[list[bool]]:
        parts: Any = SimpleNamespace(fleet=fleet, on_leave="lost", crashes=None)
        churn = Churn(parts, (), lambda client, cause: None, Trace(), Key.root(0))
        await clock.sleep_until(at_s)
        return [[churn.stays(*who, until_ns) for until_ns in instants] for who, instants in of.items()]

    return clock.run(main())


def test_who_stays_until_an_instant_is_there_then_too() -> None:
    fleet = fleet_of(2, {0: [(0, 1), (3, 4)]})
    assert staying(fleet, 0.0, {(0, 0): [0], (1, 0): [10**18]}) == [[False], [True]]
    until_ns = [S, 2 * S, 3 * S - 1, 3 * S, 9 * S]
    assert staying(fleet, 1.0, {(0, 0): until_ns}) == [[True, True, True, False, False]]


def test_who_drops_out_stays_until_just_before() -> None:
    fleet = fleet_of(1, drop_out="0.5 /s")
    draws = [Key.root(0).child("drop_out", 0, dispatch).uniform() for dispatch in range(5)]
    ends_ns = [7 * S + round(-log(draw) / 0.5 * 1e9) for draw in draws]
    around = {(0, dispatch): [at_ns - 1, at_ns, at_ns + 1] for dispatch, at_ns in enumerate(ends_ns)}
    assert staying(fleet, 7.0, around) == [[True, False, False]] * 5
