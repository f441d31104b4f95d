import io
import json

import numpy as np

from fedsim import clock
from fedsim.report.logs import line_log


def test_lines_are_stamped_with_virtual_time_and_nothing_of_the_host() -> None:
    sink = io.BytesIO()
    log = line_log(sink)

    async def simulate() -> None:
        await clock.sleep_for(2.5)
        log.warning("dropped", client=3, cause="timeout")

    log.info("begin", name="ü")
    clock.run(simulate())
    assert sink.getvalue().decode().splitlines() == [
        '{"level": "info", "event": "begin", "name": "ü"}',
        '{"at_s": 2.5, "level": "warning", "event": "dropped", "client": 3, "cause": "timeout"}',
    ]


def test_values_that_json_lacks_are_told_in_its_words() -> None:
    sink = io.BytesIO()
    line_log(sink).info("x", n=np.int64(3), f=np.float32(0.5), nan=float("nan"), inf=np.inf, other=slice(1))
    record = json.loads(sink.getvalue())
    assert record == {
        "level": "info",
        "event": "x",
        "n": 3,
        "f": 0.5,
        "nan": None,
        "inf": None,
        "other": "slice(None, 1, None)",
    }
