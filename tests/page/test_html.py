"""The HTML of a page: whole in one file, with data that cannot leave their place."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from fedsim.page.html import html, in_script
from fedsim.page.page_content import Page, page_json


class Elements(HTMLParser):
    """The elements of a document, with their attributes and texts."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._is_open = False
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self._is_open = True

    def handle_endtag(self, tag: str) -> None:
        self._is_open = False

    def handle_data(self, data: str) -> None:
        if self._is_open:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def test_data_are_read_back_whatever_is_in_them(sample_page: Page, hostile: str) -> None:
    elements = Elements(html(sample_page))
    data, program = elements.named("script")
    assert data[0] == {"type": "application/json", "id": "data"}
    assert json.loads(data[1])["page"] == json.loads(json.dumps(page_json(sample_page)))
    assert hostile in json.loads(data[1])["page"]["title"]
    assert not re.search("[<>&\u2028\u2029]", data[1])
    assert program[0] == {}
    assert not elements.named("img")
    assert sample_page.answer in html(sample_page)


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "\u2028\u2029", "&lt;", '"\\'])
def test_a_text_is_no_markup(text: str) -> None:
    shown = in_script([text])
    assert json.loads(shown) == [text]
    assert not re.search("[<>&\u2028\u2029]", shown)


def test_the_policy_allows_these_scripts_and_styles_alone(sample_page: Page) -> None:
    elements = Elements(html(sample_page))
    policy = next(one["content"] for one, _ in elements.named("meta") if "http-equiv" in one)

    def allowed(text: str) -> str:
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    ((_, style),) = elements.named("style")
    script = elements.named("script")[1][1]
    assert policy == (
        f"default-src 'none'; script-src {allowed(script)}; style-src {allowed(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    live = Elements(html(sample_page, connects=True))
    assert any("connect-src 'self'" in (one.get("content") or "") for one, _ in live.named("meta"))


def test_nothing_else_is_named(sample_page: Page) -> None:
    for _, attributes, _ in Elements(html(sample_page)).found:
        assert not {"src", "href", "style", "onclick", "onload"} & attributes.keys()


def test_a_page_without_data_is_small() -> None:
    assert len(html(Page("t", "run", "Nothing.")).encode()) < 300_000


def test_the_licence_of_what_is_brought_along_is_in_the_page() -> None:
    shown = html(Page("t", "run", "Nothing."))
    assert "https://github.com/leeoniya/uPlot (v1.6.32)" in shown
    assert "The above copyright notice and this permission notice shall be included" in shown
