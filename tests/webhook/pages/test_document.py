from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import msgspec
import pytest

from tests.webhook.pages.reports import HOSTILE
from webhook.pages import Frame, Page, assets, document, message_page, sign_in_page
from webhook.pages.document import self_contained

PAGE = Page(name="nodes", title=HOSTILE, body="<p>text</p>", figures={"plot": {"data": [HOSTILE]}})


class _Elements(HTMLParser):
    """The elements of a document, with their attributes; and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag if tag in self.texts else ""
        if self._inside:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside][-1] += data


def test_a_document_has_a_language_a_title_and_one_heading() -> None:
    text = document(PAGE, Frame(cluster="prod"))
    elements = _Elements(text).found
    assert ("html", {"lang": "en"}) in elements
    assert [tag for tag, _ in elements].count("h1") == 1
    assert "<title>&lt;/script&gt;" in text


def test_nothing_runs_in_a_document_but_its_assets() -> None:
    elements = _Elements(document(PAGE, Frame(cluster=HOSTILE, namespace=HOSTILE))).found
    sources = [a for tag, a in elements if tag == "script" and a.get("type") != "application/json"]
    assert all(str(a["src"]).startswith("assets/") for a in sources)
    names = {str(a["src"]).removeprefix("assets/") for a in sources}
    assert names <= set(assets())
    for tag, attributes in elements:
        assert tag not in {"img", "iframe", "object", "base"}
        assert not any(name.startswith("on") or name == "style" for name in attributes)


def test_figures_survive_in_the_document_and_cannot_end_their_element() -> None:
    data, *_ = _Elements(document(PAGE, Frame(cluster="prod"))).texts["script"][-1:]
    assert msgspec.json.decode(data) == {"plot": {"data": [HOSTILE]}}


def test_the_navigation_has_the_pages_that_the_reader_may_open() -> None:
    text = document(PAGE, Frame(cluster="prod", pages=("nodes", "quotas"), namespace="a&b"))
    assert 'href="nodes" aria-current="page"' in text
    assert 'href="quotas?namespace=a%26b"' in text
    assert ">Policies<" not in text


@pytest.mark.parametrize("is_live", [True, False])
def test_only_a_live_page_can_be_paused(*, is_live: bool) -> None:
    text = document(PAGE, Frame(cluster="prod", is_live=is_live))
    assert ("Pause updates" in text) == is_live
    assert ("data-live" in text) == is_live


def test_a_page_without_figures_does_not_load_the_plots() -> None:
    text = document(message_page("Not found", HOSTILE), Frame(cluster="prod"))
    assert "assets/plotly" not in text
    assert "<img" not in text


def test_the_sign_in_page_posts_a_token_and_says_what_was_wrong() -> None:
    text = document(sign_in_page(HOSTILE), Frame(cluster="prod", pages=()))
    assert '<form method="post" action="sign-in"' in text
    assert 'name="token"' in text
    assert "<img" not in text


def test_the_sign_in_page_shows_a_command_as_code() -> None:
    text = sign_in_page("a token is needed: `kubectl create token NAME` makes one").body
    assert "needed: <code>kubectl create token NAME</code> makes one</p>" in text


def test_the_names_of_assets_change_with_what_they_contain() -> None:
    for name, asset in assets().items():
        assert hashlib.sha256(asset.body).hexdigest()[:12] in name


def test_a_self_contained_document_admits_its_own_scripts_and_styles_alone() -> None:
    text = self_contained(PAGE)
    elements = _Elements(text)
    (policy,) = (a["content"] for tag, a in elements.found if "http-equiv" in a)
    assert policy is not None
    assert "unsafe" not in policy
    scripts = [s for s in elements.texts["script"] if s and not s.startswith('{"plot"')]
    digests = {
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in (*scripts, *elements.texts["style"])
    }
    assert set(re.findall(r"'sha256-[^']+'", policy)) == digests
    assert not [a for _, a in elements.found if "src" in a]


def test_no_asset_could_end_the_element_it_is_inlined_in() -> None:
    for asset in assets().values():
        assert b"</script" not in asset.body.lower()
        assert b"</style" not in asset.body.lower() or not asset.name.endswith(".css")
