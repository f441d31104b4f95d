"""Scenarios that have failed once, as they were shrunk."""

import tomllib
from pathlib import Path

import pytest

from fedsim.fuzz.examine import examine
from fedsim.fuzz.random_scenarios import RandomScenario

FRAME_AT_THE_LAST_INSTANT = """
[run]
seed = 6
until = { bytes = "30 kB" }

[data]
split = [0.5, 0.0, 0.5]
limit = 90

[models.m6]
name = "mlp"
params = { hidden = [6] }

[algorithm]
name = "ifca"

[training]
steps = 0

[[fleet]]
count = 2
device = "mcu"
speed = "3 MFLOP/s"
load = { distribution = "lognormal", sigma = 0.5 }

[network]
model = "none"
overhead = { tls = true }

[participation.pacing]
name = "buffered"
params = { concurrency = 2 }

[evaluation]
every = 0
at_start = true

[codec.up]
models = { chain = ["bfloat16"], least = "1 B" }
"""
"""A frame arrived at the instant at which the run had ended, and was in the trace, but not in its hash."""


OVERTAKEN_DISPATCH = """
[run]
seed = 8
rounds = 4

[data]
public = { size = 1 }

[models.m4]
name = "mlp"
params = { hidden = [2] }

[algorithm]
name = "fedme"

[[fleet]]
count = 4

[fleet.availability]
name = "renewal"
params = { on = "2 s", off = "2 s" }

[server]
up = { distribution = "lognormal", median = "20 kbit/s", sigma = 0.5 }

[participation]
client_timeout = "5 s"

[participation.pacing]
params = { interval = "3 min" }
"""
"""A hook had begun beforehand, and its frame came after that of a later dispatch. It met the older state."""


CRASH_BEHIND_A_REPLY = """
[run]
seed = 3
rounds = 2

[data]
public = { size = 1 }

[algorithm]
name = "dsfl"

[[fleet]]
count = 1
latency = "700 ms"

[[fleet]]
count = 1

[[faults]]
kind = "crash"
at = "30 ms"
keeps_state = false
every = "1 s"
probability = 0.3
"""
"""A client crashed after its reply, while another one was at work. It forgot nothing on the fast path, where
its state counted as newer than the crash."""


SPENT_BEFORE_THE_FIRST_ROUND = """
[run]
until = { joules = "3 J" }

[data]
public = { size = 1 }

[algorithm]
name = "fedmd"

[[fleet]]
count = 1
speed = { distribution = "choice", values = ["3 MFLOP/s"] }

[evaluation]
at_start = true
"""
"""A budget of energy was spent before the first round. The check took the evaluation before it and the one
after the last round for two."""


SATURATED_REPLY_THAT_IS_NOT_MERGED = """
[run]
rounds = 1

[training]
lr = 1000000.0

[[fleet]]
count = 1

[participation.pacing]
params = { min_replies = 2 }

[codec.up]
models = { chain = ["float16"] }
"""
"""A reply was too few to be merged, and values of it were beyond the range of a codec. They counted where
somebody had looked at its bytes."""


@pytest.mark.parametrize(
    "toml",
    [
        FRAME_AT_THE_LAST_INSTANT,
        OVERTAKEN_DISPATCH,
        CRASH_BEHIND_A_REPLY,
        SPENT_BEFORE_THE_FIRST_ROUND,
        SATURATED_REPLY_THAT_IS_NOT_MERGED,
    ],
)
def test_it_fails_no_more(toml: str, tmp_path: Path) -> None:
    assert examine(RandomScenario(tomllib.loads(toml)), tmp_path).faults == ()
