"""A worker process ends with the study that has started it, and keeps nothing of the runs before."""

import json
import signal
import subprocess
import sys

from fedsim.processes.children import variables
from fedsim.studies.worker_pool import COMMAND


def test_a_study_that_ends_while_its_worker_imports_ends_the_worker_at_once() -> None:
    process = subprocess.Popen(  # noqa: S603
        COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=variables()
    )
    said, _ = process.communicate()
    # By the signal itself: what handles it later is imported with what takes long.
    assert (process.returncode, said) == (-signal.SIGTERM, b"")


CODE = """
import gc, json, sys, types, weakref
from fedsim.studies import worker_process

class Run:
    def __init__(self):
        self.itself = self

runs = weakref.WeakSet()

def do(task, outlet):
    kept = len(runs)
    runs.add(Run())
    return {"kept": kept}

def tell(outlet, message):
    outlet.write(json.dumps(message) + "\\n")

gc.disable()
sys.modules["fedsim.studies.worker"] = types.SimpleNamespace(do=do, tell=tell)  # the real one takes seconds
worker_process.main()
"""


def test_a_worker_keeps_no_garbage_of_the_runs_before() -> None:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"{}\n{}\n")
    process.stdin.flush()
    assert [json.loads(process.stdout.readline()) for _ in range(2)] == [{"kept": 0}, {"kept": 0}]
    process.communicate(timeout=60)
