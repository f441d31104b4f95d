"""Two clients go on while replies are merged, and settings change when the first is, after 5 s.

Client 0 has done its work for 3 s by then, with a second for each frame, and is asked anew. Client 1 works as
long as a test says, so it is at work or its reply is under way.
"""

from typing import Any

from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.network.fault_settings import FaultConfig, RetryConfig
from fedsim.network.none import PLUGIN as NO_NETWORK
from fedsim.runtime.budget import UntilConfig
from fedsim.runtime.changeable_settings import changes
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.run import run
from fedsim.wire.codecs.choices import CodecConfig

BUFFERED = Buffered(Buffered.Config(concurrency=2, buffer=1))


def faults(**one: Any) -> dict[str, Any]:
    return {"faults": (FaultConfig.model_validate(one),)}


def until(**budgets: Any) -> dict[str, Any]:
    return {"until": UntilConfig.model_validate(budgets)}


def play(world: Any, work_s: float, later: dict[str, Any], before: dict[str, Any] | None = None) -> Any:
    """Run with a change after 5 s; return the algorithm, the result and the records."""

    class Counting(world.Scripted):  # type: ignore[misc]
        discounted = "steps"

    algorithm = Counting(work_s=lambda client, _: (3.0, work_s)[client.client])
    parts = world.make_parts(algorithm, sizes=(2, 2), rounds=3, pacing=BUFFERED, **before or {})
    first = {name: getattr(parts, name) for name in ("codec", "faults", "pacing", "until", *later)}
    trace = Trace(keep=True)
    result = run(parts, trace=trace, stages={0: first, 1: {**first, **later}})
    return algorithm, result, trace.kept


def merges(world: Any, work_s: float, later: dict[str, Any], before: dict[str, Any] | None = None) -> Any:
    """Return when replies of which clients were merged, s."""
    algorithm, *_ = play(world, work_s, later, before)
    return [(*who, at_s) for _, who, at_s in algorithm.noted("merge")]


def test_nothing_changes_where_the_settings_are_the_same(world: Any) -> None:
    assert merges(world, 3.5, {}) == [(0, 5.0), (1, 5.5), (0, 10.0)]


def test_a_frame_under_way_stays_in_its_network(world: Any) -> None:
    later = {"network": NO_NETWORK(Config())}
    assert merges(world, 3.5, later) == [(0, 5.0), (1, 5.5), (0, 8.0)]


def test_a_frame_under_way_meets_no_later_fault(world: Any) -> None:
    lost = faults(kind="loss", probability=1, direction="up")
    assert merges(world, 3.5, lost | until(simulated="20 s")) == [(0, 5.0), (1, 5.5)]


def test_a_frame_under_way_is_sent_again_as_it_would_have_been(world: Any) -> None:
    # The reply of client 1 leaves from 4.5 s to 5.5 s, and is lost.
    lost = faults(kind="loss", probability=1, direction="up", at="4.2 s", **{"for": "1 s"})
    before = lost | {"retry": RetryConfig.model_validate({"times": 1, "after": "3 s"})}
    assert merges(world, 3.5, {"retry": None}, before) == [(0, 5.0), (1, 9.5), (0, 10.0)]


def test_a_job_under_way_is_as_slow_as_it_was(world: Any) -> None:
    assert merges(world, 5, faults(kind="slow", factor=2)) == [(0, 5.0), (1, 7.0), (0, 13.0)]


def test_a_client_at_work_crashes_when_it_would_have(world: Any) -> None:
    _, _, kept = play(world, 7, faults(kind="crash", at="5.2 s"))
    struck = [record[2:4] for record in kept if record[1] == "fault"]
    assert struck == [(0, 1)]  # at its second dispatch
    assert merges(world, 3.5, {"faults": ()}, faults(kind="crash", at="5.2 s"))[:2] == [(0, 5.0), (0, 10.0)]


def test_a_lease_keeps_its_length(world: Any) -> None:
    algorithm, _, kept = play(world, 7, {"client_timeout_s": 4.5} | until(simulated="12 s"))
    assert [(who, at_s) for _, who, at_s in algorithm.noted("merge")] == [((0,), 5.0), ((1,), 9.0)]
    drops = [record for record in kept if record[1] == "drop"]
    assert drops[0] == (9_500_000_000, "drop", 0, 1, "timeout")


def test_a_dispatch_and_its_reply_have_the_codecs_of_its_round(world: Any) -> None:
    chain = {"logits": {"chain": ["float16"], "least": "1 B"}}
    codec = CodecConfig.model_validate({"up": chain, "down": chain})
    long = {"client_timeout_s": 1000.0}  # which coding takes a part of

    def coded(later: CodecConfig, before: CodecConfig) -> set[tuple[Any, ...]]:
        _, result, kept = play(world, 3.5, {"codec": later}, {"codec": before} | long)
        assert not result.rejections
        return {record[2:5] for record in kept if record[1] == "coded"}

    both_ways = [{(client, dispatch, up) for up in (False, True)} for client, dispatch in ((0, 0), (1, 0))]
    assert coded(CodecConfig(), codec) == set[Any]().union(*both_ways)
    frames = coded(codec, CodecConfig())
    assert (0, 1, False) in frames
    assert not frames.intersection(*both_ways)


def test_a_budget_counts_from_the_beginning(world: Any) -> None:
    _, result, _ = play(world, 3.5, until(simulated="8 s"))
    assert (result.stopped_by, result.simulated_s) == ("simulated", 8.0)
    whole, *_ = play(world, 3.5, {})[1:]
    each = whole.totals.bytes_down // whole.totals.frames_down
    _, result, _ = play(world, 3.5, until(bytes=f"{6 * each} B"))
    assert (result.stopped_by, result.simulated_s) == ("bytes", 5.5)  # two replies, and four dispatches
    for spent in ({"simulated": "5 s"}, {"bytes": "1 B"}):
        _, result, _ = play(world, 3.5, until(**spent))
        assert result.simulated_s == 5.0


def test_what_is_open_is_dropped_where_another_pacing_begins(world: Any) -> None:
    algorithm, result, _ = play(world, 3.5, {"pacing": SYNCHRONOUS(SYNCHRONOUS.Config())})
    assert algorithm.noted("merge")[:2] == [(1, (0,), 5.0), (2, (0, 1), 10.5)]
    assert (result.drops, len(result.rounds)) == ({"another pacing has begun": 1}, 3)


def test_what_is_the_same_has_not_changed(world: Any) -> None:
    parts = world.make_parts(world.Scripted())
    same = {"pacing": SYNCHRONOUS(SYNCHRONOUS.Config()), "codec": CodecConfig(), "rounds": 1}
    assert changes(parts, same) == {}
    assert changes(parts, same | {"rounds": 2}) == {"rounds": 2}
