import subprocess
import sys

import pytest

from fedsim.bus.http.limits import HttpLimits


def test_limits_are_positive_and_a_small_frame_fits_into_a_request() -> None:
    with pytest.raises(ValueError, match="heartbeat_s is 0"):
        HttpLimits(heartbeat_s=0)
    with pytest.raises(ValueError, match="batch_bytes is 65536"):
        HttpLimits(batch_bytes=65_536)


def test_aiohttp_is_loaded_only_for_sockets() -> None:
    light = ", ".join(f"fedsim.bus.http.{name}" for name in ("access", "limits", "messages", "state_folder"))
    program = f"import sys, fedsim.bus, {light}; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603
