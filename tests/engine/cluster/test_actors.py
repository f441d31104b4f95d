from __future__ import annotations

import sys

import pytest
import torch

import fedsim
from fedsim.data.fingerprints import fingerprint
from fedsim.engine.cluster.actors import Done, Greeting, JobActor
from fedsim.engine.cluster.numeric_fingerprint import numeric_fingerprint
from fedsim.engine.cluster.packing import Failure, Loans, packed
from fedsim.engine.execute import run
from fedsim.engine.jobs import ClientSamples, Stream
from fedsim.engine.worker_state import Resources, Worker
from fedsim.errors import UserError
from tests.engine.conftest import MakeFit

pytest.importorskip("ray")


def test_it_greets_with_its_data_and_its_numbers_and_works_with_one_torch_thread(
    resources: Resources, two_torch_threads: None
) -> None:
    greeting = JobActor([]).greet(lambda: resources)
    assert isinstance(greeting, Greeting)
    assert greeting.fedsim == fedsim.__version__
    assert greeting.data == fingerprint(resources.data)
    assert greeting.numbers == numeric_fingerprint(resources)
    assert torch.get_num_threads() == 1


def test_what_it_cannot_build_it_says() -> None:
    def rebuild() -> Resources:
        raise UserError("no such file")

    answer = JobActor([]).greet(rebuild)
    assert isinstance(answer, Failure)
    assert str(answer.error()) == "no such file"


@pytest.mark.parametrize("alike", [True, False])
def test_each_job_gets_its_result_or_its_failure(
    alike: bool, resources: Resources, worker: Worker, make_fit: MakeFit
) -> None:
    actor = JobActor([])
    actor.greet(lambda: resources)
    fits = [make_fit(seed=1), make_fit(streams={"train": Stream(ClientSamples(99), 4)}), make_fit(seed=2)]
    done = Loans(0).read(actor.do(packed(fits), alike))
    assert isinstance(done, Done)
    assert done.results[0].model.digest() == run(fits[0], worker).model.digest()
    with pytest.raises(IndexError) as here:
        run(fits[1], worker)
    assert repr(done.results[1].error()) == repr(here.value)
    assert done.results[2].model.digest() == run(fits[2], worker).model.digest()


def test_modules_of_the_driver_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/here"])
    JobActor(["/here", "/there"])
    assert sys.path == ["/here", "/there"]
