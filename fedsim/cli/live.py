"""The option ``--live``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fedsim.cli.console import note

if TYPE_CHECKING:
    from fedsim.page.live_page import LivePage


def live_page(port: int | None) -> LivePage | None:
    """Return the page that is asked for, whose address is printed; the command closes it at its end."""
    if port is None:
        return None
    from fedsim.page.live_page import LivePage

    page = click.get_current_context().with_resource(LivePage(port))
    note(f"live page: {page.url}")
    return page
