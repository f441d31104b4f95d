import subprocess
import sys


def test_aiohttp_is_loaded_only_for_sockets() -> None:
    light = ", ".join(f"fedsim.bus.http.{name}" for name in ("access", "limits", "messages", "state_folder"))
    program = f"import sys, fedsim.bus, {light}; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603
