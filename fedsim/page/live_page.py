"""The live page of runs in this process, for browsers on this machine."""

from __future__ import annotations

from html import escape
from typing import Self

from fedsim.page.html import html
from fedsim.page.live_server import LiveServer
from fedsim.page.live_snapshot import Followed, panels
from fedsim.page.page_content import Page


class LivePage:
    """A page on loopback that follows what is done, until it is closed; as a context, until its end.

    ::

        with fedsim.LivePage() as page:
            print(page.url)
            fedsim.run("quickstart", live=page)

    It shows one run, comparison or study at a time, the last that was begun with it. Only browsers of this
    machine can read it, and nobody can do anything else. It changes no result, and takes about half a
    percent of the run's time while somebody looks.

    Args:
        port: Where to serve it; 0 lets the system choose.

    Raises:
        UserError: The port is none, or taken.
    """

    def __init__(self, port: int = 0) -> None:
        self._followed: Followed | None = None
        waiting = html(Page("fedsim", "run", "Nothing has begun yet."), start=("live",), connects=True)
        self._server = LiveServer(waiting.encode(), self._panels, port).start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return self._server.url

    def follow(self, what: Followed) -> None:
        """Show this from now on; call it again when it has ended."""
        self._followed = what
        self._server.renew(what.clock)

    def close(self) -> None:
        """Send the last state to open pages, which keep it, and end."""
        self._server.close()

    def _panels(self) -> dict[str, str]:
        return {} if self._followed is None else panels(self._followed.snapshot())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"live page at {self.url}"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank">{escape(repr(self))}</a>'
