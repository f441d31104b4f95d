from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fedsim.fleet import Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.availability.on_off import DutyCycle, DutyCycleConfig
from fedsim.network.fault_settings import FaultConfig
from fedsim.report.remarks import remarks
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.workloads.deadline_fitted import PLUGIN as FITTED
from fedsim.runtime.run import run

Make = Callable[..., Parts]


def fleet_of(*entries: Mapping[str, Any], **rhythm: object) -> Fleet:
    groups = [GroupConfig.model_validate({"model": "linear", **entry}) for entry in entries]
    models = [DutyCycle(DutyCycleConfig.model_validate(rhythm)) for _ in groups] if rhythm else None
    return build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear", availability=models)


def pacing(**settings: object) -> Any:
    return SYNCHRONOUS(SYNCHRONOUS.Config.model_validate(settings))


def said(parts: Parts, simulated_s: float | None = None) -> list[str]:
    return remarks(parts, run(parts), simulated_s)


def test_an_ordinary_run_gives_no_remark(make_parts: Make) -> None:
    assert said(make_parts(executor="null")) == []


def test_a_run_too_short_for_its_availability_to_matter(make_parts: Make) -> None:
    rhythm: dict[str, object] = {"period": "8 h", "on_share": 0.9}
    parts = make_parts(executor="null", fleet=fleet_of({"count": 1}, {"count": 3}, **rhythm))
    (remark,) = said(parts, 47 * 60.0)
    assert remark == (
        "the run covers 47 min, and availability 'duty_cycle' changes over 8 h: hardly any of that is seen; "
        "run more rounds, give participation.pacing an interval, or leave availability out"
    )
    assert said(parts)[0].startswith("the run covers 83.9 ms, ")  # the result's own time
    assert said(parts, 48 * 60.0) == []


def test_whoever_is_always_there_changes_over_no_time(make_parts: Make) -> None:
    fleet = fleet_of({"count": 4}, period="8 h", on_share=1)
    assert said(make_parts(executor="null", fleet=fleet)) == []


OTHERS = {"count": 3, "device": "high"}
NEVER_READY = {"count": 1, "device": "high", "up": "100 bit/s"}
"""Its reply of some 20 kbit takes minutes."""


def test_a_run_that_mostly_waits_for_leases(make_parts: Make) -> None:
    parts = make_parts(executor="null", client_timeout_s=60.0, fleet=fleet_of(OTHERS, NEVER_READY))
    result = run(parts)
    assert dict(result.drops) == {"timeout": 2}
    (remark,) = remarks(parts, result)
    assert remark == (
        "waiting for clients that did not reply took 2 min of 2 min: a lease (client_timeout = 1 min) had to "
        "run out in 2 rounds; give a smaller participation.client_timeout, or participation.pacing a "
        "deadline or over_selection"
    )


def test_a_client_that_drops_out_is_waited_for_too(make_parts: Make) -> None:
    entry = {**NEVER_READY, "drop_out": "1000 /h"}
    result = run(parts := make_parts(executor="null", client_timeout_s=60.0, fleet=fleet_of(OTHERS, entry)))
    assert dict(result.drops) == {"dropped out": 2}
    assert len(remarks(parts, result)) == 1
    with_deadline = make_parts(
        executor="null", client_timeout_s=60.0, fleet=fleet_of(OTHERS, entry), pacing=pacing(deadline="50 s")
    )
    assert dict(run(with_deadline).drops) == {"dropped out": 2}
    assert said(with_deadline) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"pacing": pacing(deadline="10 s")},
        {"pacing": pacing(deadline="10 s", late="carry"), "rounds": 10},
        {"pacing": pacing(over_selection=2), "clients_per_round": 2},
        {"pacing": pacing(interval="3 min"), "rounds": 3},
    ],
    ids=["deadline", "carry", "over_selection", "interval"],
)
def test_leases_that_delay_nothing_are_not_waited_for(make_parts: Make, changes: dict[str, Any]) -> None:
    fleet = fleet_of(OTHERS, NEVER_READY)
    parts = make_parts(executor="null", client_timeout_s=60.0, fleet=fleet, **changes)
    result = run(parts)
    assert result.drops.total() > 0
    assert remarks(parts, result) == []


def test_the_time_until_the_last_reply_is_no_waiting(make_parts: Make) -> None:
    slow = {**OTHERS, "count": 1, "overhead": "50 s"}
    fleet = fleet_of({**OTHERS, "count": 2}, slow, NEVER_READY)
    result = run(parts := make_parts(executor="null", client_timeout_s=60.0, fleet=fleet))
    assert dict(result.drops) == {"timeout": 2}
    assert remarks(parts, result) == []


def test_replies_that_did_not_fit_their_deadline(make_parts: Make) -> None:
    def fitted(deadline: str, **params: object) -> Any:
        return FITTED(FITTED.Config.model_validate({"deadline": deadline, **params}))

    fleet = fleet_of({"count": 1, "device": "high"}, {"count": 3, "device": "high", "up": "1 kbit/s"})
    parts = make_parts(executor="null", fleet=fleet, workload=fitted("1 s"))
    (remark,) = said(parts)
    assert remark == (
        "6 of 8 replies came after the deadline of participation.workload (1 s): the least work takes "
        "longer, or links are shared; give it a longer deadline"
    )
    assert said(make_parts(executor="null", fleet=fleet, workload=fitted("10 min"))) == []
    late = FaultConfig.model_validate({"kind": "delay", "probability": 1, "delay": "9 s"})
    (remark,) = said(make_parts(executor="null", workload=fitted("1 s"), faults=(late,)))
    assert "the least work takes longer, or links are shared, or faults delayed them; give" in remark
