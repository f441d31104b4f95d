"""The live page of runs in this process: it shows them, and they stay what they are."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import fedsim
from fedsim.errors import UserError
from fedsim.page.live_page import LivePage

TINY: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 3},
    "data": {"limit": 80, "global_test": 0.2},
    "models": {"mlp": {"params": {"hidden": [4]}}},
    "fleet": [{"count": 3, "device": "low"}],
    "engine": {"workers": 1},
}


class Reader(threading.Thread):
    """An open page: puts together the panels that it is sent."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.panels = dict[str, Any]()
        self.states = list[str]()
        self.ended = False
        self._stream = urllib.request.urlopen(f"{url}events")  # noqa: S310 - our own page

    def run(self) -> None:
        for line in self._stream:
            if line.startswith(b"data: {"):
                self.panels |= json.loads(line[6:])["panels"]
                if state := self.panels.get("progress", {}).get("state"):
                    self.states.append(state)
            self.ended = self.ended or line == b"event: end\n"
        self._stream.close()


@contextmanager
def read(page: LivePage) -> Iterator[Reader]:
    """Read a page, which is closed at the end of the block."""
    reader = Reader(page.url)
    reader.start()
    yield reader
    page.close()
    reader.join()


def test_a_run_is_the_same_with_a_page_and_with_readers() -> None:
    alone = fedsim.run(TINY).summary
    with LivePage() as page:
        unseen = fedsim.run(TINY, live=page).summary
    with LivePage() as page, read(page), read(page) as reader:
        seen = fedsim.run(TINY, live=page)
    del seen.summary["wall_s"], alone["wall_s"], unseen["wall_s"]
    assert alone == unseen == seen.summary
    assert reader.ended
    assert reader.states[-1] == "ended"
    assert reader.panels["words"]["title"] == "tiny: fedavg, seed 0"
    assert ["trace hash", alone["trace_hash"]] in reader.panels["words"]["facts"], "it shows the report"


def test_runs_follow_each_other_on_a_page() -> None:
    with LivePage() as page, read(page) as reader:
        fedsim.run(TINY, live=page)
        comparison = fedsim.compare(TINY, ["fedavg", "local"], live=page)
    assert len(comparison) == 2
    assert reader.panels["outline"]["kind"] == "comparison"


@pytest.mark.slow  # runs in another process
def test_a_study_on_a_page() -> None:
    study = {"name": "few", "base": TINY, "seeds": [0], "variant": [{"algorithm": "local"}]}
    with LivePage() as page, read(page) as reader:
        result = fedsim.study(study, jobs=1, live=page)
    assert result.failed == {}
    assert reader.panels["words"]["title"] == "few"
    assert reader.states[-1] == "ended"


def test_a_run_that_fails_is_shown_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with LivePage() as page, read(page) as reader, pytest.raises(KeyboardInterrupt):
        fedsim.run(TINY, live=page, progress=fail)
    page.close()
    reader.join()
    assert reader.states[-1] == "failed"
    assert reader.panels["words"]["answer"].endswith("It was interrupted.")


def test_it_is_a_link_in_a_notebook() -> None:
    with LivePage() as page:
        assert repr(page) == f"live page at {page.url}"
        assert f'<a href="{page.url}"' in page._repr_html_()


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_what_is_no_port_is_told(port: int) -> None:
    with pytest.raises(UserError, match=f"^{port} is no port: choose one from 1024 to 65535, or"):
        LivePage(port)
