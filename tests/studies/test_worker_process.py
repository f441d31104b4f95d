"""A worker process ends with the study that has started it."""

import signal
import subprocess

from fedsim.processes.children import variables
from fedsim.studies.worker_pool import COMMAND


def test_a_study_that_ends_while_its_worker_imports_ends_the_worker_at_once() -> None:
    process = subprocess.Popen(  # noqa: S603
        COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=variables()
    )
    said, _ = process.communicate()
    # By the signal itself: what handles it later is imported with what takes long.
    assert (process.returncode, said) == (-signal.SIGTERM, b"")
