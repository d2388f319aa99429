"""A page as HTML: the document around it, its blocks and lines, and the update of an open page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

from webhook.pages import ui

if TYPE_CHECKING:
    from jinja2 import Environment


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page.

    Attributes:
        name: its URL below the dashboard, such as `nodes`; "" if it never changes.
        title: what it shows.
        body: HTML of its main part. Elements with a class `live` and an id are replaced by those of
            an update; others stay.
        figures: by the id of the element that each is drawn in.
    """

    name: str
    title: str
    body: str
    figures: Mapping[str, ui.Figure] = {}


def page_of(name: str, title: str, blocks: Sequence[ui.Block]) -> Page:
    """Return a page of a document."""
    figures = {plot.id: plot.figure for plot in ui.plots_in(blocks)}
    return Page(name=name, title=title, body=render("blocks.html", blocks=blocks), figures=figures)


def render(template: str, /, **values: object) -> str:
    """Return HTML of a template, such as `document.html`."""
    return _environment().get_template(template).render(**values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    # Imported where pages are asked for: it takes some megabytes, and most replicas show none.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("webhook.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inline": inline, "plain": plain, "prose": prose}
    environment.tests["shown"] = ui.is_shown
    return environment


PLOTS = "plotly.js"
SCRIPT = "pages.js"
STYLES = "pages.css"

_SCRIPT_TYPE = "text/javascript; charset=utf-8"
_DIGITS = 12  # of a digest in a name

_STYLE_ID = re.compile(r'getElementById\("([0-9a-f]{64})"\)')


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that never changes under its name.

    Attributes:
        name: with a digest of what it contains, so that browsers may keep it for ever.
        content_type: of HTTP.
    """

    name: str
    content_type: str
    body: bytes


@lru_cache(maxsize=1)
def asset_table() -> Mapping[str, Asset]:
    """Return the files by what they are: `PLOTS`, `SCRIPT`, `STYLES`; 5 MB, read once."""
    own = files("webhook.pages") / "static"
    plots = files("plotly") / "package_data" / "plotly.min.js"
    return {
        PLOTS: _asset(PLOTS, _SCRIPT_TYPE, plots.read_bytes()),
        SCRIPT: _asset(SCRIPT, _SCRIPT_TYPE, (own / SCRIPT).read_bytes()),
        STYLES: _asset(STYLES, "text/css; charset=utf-8", (own / STYLES).read_bytes()),
    }


def assets() -> Mapping[str, Asset]:
    """Return the files by their names in URLs."""
    return {asset.name: asset for asset in asset_table().values()}


@lru_cache(maxsize=1)
def style_ids() -> tuple[str, ...]:
    """Return the ids of style elements that plotly.js adds unless there are elements with them.

    They are for maps, which no page has; our Content-Security-Policy would refuse them.
    """
    return tuple(sorted(set(_STYLE_ID.findall(asset_table()[PLOTS].body.decode()))))


def _asset(name: str, content_type: str, body: bytes) -> Asset:
    stem, _, suffix = name.rpartition(".")
    digest = hashlib.sha256(body).hexdigest()[:_DIGITS]
    return Asset(f"{stem}.{digest}.{suffix}", content_type, body)


PAGES: Final[Mapping[str, str]] = {
    "nodes": "Nodes",
    "pod": "Pods",
    "quotas": "Quotas",
    "queue": "Queue",
    "policies": "Policies",
}
"""The pages of the dashboard: titles in the navigation, by their URLs."""

_PARENTS: Final[Mapping[str, str]] = {"node": "nodes", "policy": "policies"}
"""The page of the navigation that others are reached from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What surrounds a page of the dashboard.

    Attributes:
        cluster: what is shown, such as a file or the context of a kubeconfig.
        pages: names of those that this reader may open, for the navigation.
        namespace: that links of the navigation keep, "" for all.
        is_live: whether events tell of changes.
        user: who is signed in, "" for nobody.
    """

    cluster: str
    pages: tuple[str, ...] = tuple(PAGES)
    namespace: str = ""
    is_live: bool = False
    user: str = ""


def document(page: Page, frame: Frame) -> str:
    """Return a whole HTML document, whose assets, events and updates have URLs beside its own."""
    table = asset_table()
    has_plots = bool(page.figures or (frame.is_live and page.name))  # an update may bring the first
    return render(
        "document.html",
        page=page,
        frame=frame,
        figures=figures_text(page.figures),
        current=_PARENTS.get(page.name, page.name),
        navigation=[(name, title) for name, title in PAGES.items() if name in frame.pages],
        plots=table[PLOTS].name if has_plots else "",
        script=table[SCRIPT].name,
        styles=table[STYLES].name,
        style_ids=style_ids() if has_plots else (),
    )


def update(page: Page) -> bytes:
    """Return what the script of an open page replaces it with, as JSON."""
    return msgspec.json.encode(page)


def self_contained(page: Page) -> str:
    """Return a whole HTML document that loads nothing: a file to keep and to send.

    Its Content-Security-Policy admits its own scripts and styles by their hashes alone.
    """
    table = {name: asset.body.decode() for name, asset in asset_table().items()}
    scripts = [table[PLOTS], table[SCRIPT]] if page.figures else []
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hashes(scripts)}",
            f"style-src {_hashes([table[STYLES]])}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return render(
        "file.html",
        page=page,
        figures=figures_text(page.figures),
        policy=policy,
        scripts=scripts,
        styles=table[STYLES],
        style_ids=style_ids(),
    )


def figures_text(figures: Mapping[str, ui.Figure]) -> str:
    """Return figures as JSON that cannot end the script element it stands in."""
    return msgspec.json.encode(figures).decode().replace("<", "\\u003c")


def _hashes(texts: list[str]) -> str:
    """Return the sources that admit inline texts, `'none'` for no text."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests) or "'none'"


def message_page(title: str, text: ui.Inline) -> Page:
    """Return a page of one message: what is missing, and what to do."""
    return page_of("", title, [ui.Paragraph(text)])


def starting_page(name: str, missing: Sequence[str]) -> Page:
    """Return what stands in place of a page until the cluster is read; then an update follows.

    Args:
        name: of the page.
        missing: what is not read yet.
    """
    text = f"The cluster is still being read: {', '.join(missing)}. This page comes by itself."
    return page_of(name, PAGES.get(name, name.capitalize()), [ui.Paragraph(text)])


def sign_in_page(problem: str = "") -> Page:
    """Return the page with a form for a token, posted to `sign-in`.

    Args:
        problem: why the last token did not do; "" for none.
    """
    return Page(name="", title="Sign in", body=render("sign_in.html", problem=problem))


_T = TypeVar("_T")

Query: TypeAlias = Mapping[str, str]
"""The query of a URL by key."""

MOST_TEXT = 256  # of a value that is read: longer than any name
_MOST_DIGITS = 6


def chosen(query: Query, key: str, options: Sequence[str]) -> str:
    """Return the option that a query names, the first one if it names none of them."""
    value = query.get(key, "")
    return value if value in options else options[0]


def text_of(query: Query, key: str) -> str:
    """Return a text without spaces around it, cut short."""
    return query.get(key, "").strip()[:MOST_TEXT]


@dataclass(frozen=True, slots=True)
class Part(Generic[_T]):
    """One part of a long list."""

    items: Sequence[_T]  # of this part
    number: int  # from 1
    parts: int  # how many there are, at least 1
    total: int  # items of all parts

    def links(self, choice: Query) -> ui.Paragraph:
        """Return links to the parts beside it, which keep a choice; nothing if it is all."""
        if self.parts == 1:
            return ui.Paragraph("")
        shown: list[ui.Inline] = [f"Part {self.number} of {self.parts}"]
        if self.number > 1:
            shown.insert(0, ui.Span("Previous", href=link(choice, part=self.number - 1)))
        if self.number < self.parts:
            shown.append(ui.Span("Next", href=link(choice, part=self.number + 1)))
        return ui.Paragraph(ui.joined(shown, " "), "parts")


def link(choice: Query, **change: object) -> str:
    """Return the URL of the same page with some of a choice changed."""
    kept = {**choice, **{key: str(value) for key, value in change.items()}}
    return f"?{urlencode({key: value for key, value in kept.items() if value})}"


def part_of(items: Sequence[_T], query: Query, size: int) -> Part[_T]:
    """Return the part that `part` of a query names, the nearest one if there is no such part."""
    parts = max(1, -(-len(items) // size))
    text = query.get("part", "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    number = min(max(1, int(text) if is_number else 1), parts)
    start = (number - 1) * size
    return Part(tuple(islice(items, start, start + size)), number, parts, len(items))


# What stands in a line.


_QUOTED: Final = re.compile(r"`([^`\n]+)`")


def inline(content: ui.Inline) -> _Html:
    """Return what stands in a line as HTML."""
    return _Html(_html(content))


def prose(content: ui.Inline) -> _Html:
    """Return sentences as HTML, with what they have in backticks as code."""
    match content:
        case str():
            return _Html(_QUOTED.sub(r"<code>\1</code>", _html(content)))
        case ui.Span() | ui.Level():
            return inline(content)
    return _Html("".join(map(prose, content)))


def plain(content: ui.Inline) -> str:
    """Return what stands in a line as text alone."""
    match content:
        case str():
            return content
        case ui.Span():
            return content.spoken or content.text
        case ui.Level():
            return content.text
    return "".join(map(plain, content))


class _Html(str):
    """HTML that a template does not escape again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def _html(content: ui.Inline) -> str:
    match content:
        case str():
            return escape(content).replace("\n", "<br>")
        case ui.Span():
            return _span(content)
        case ui.Level():
            return _level(content)
    return "".join(map(_html, content))


def _span(span: ui.Span) -> str:
    text = _html(span.text)
    title = f' title="{escape(span.title)}"' if span.title else ""
    if span.href:
        text = f'<a href="{escape(span.href)}"{title}>{text}</a>'
    elif title:
        text = f"<span{title}>{text}</span>"
    if span.spoken:
        hidden = f'<span class="unseen">{escape(span.spoken)}</span>'
        text = f'<span aria-hidden="true">{text}</span>{hidden}'
    match span.style:
        case None:
            return text
        case ui.Style.QUIET:
            return f'<span class="quiet">{text}</span>'
        case ui.Style.BAD:
            return f'<strong class="bad">{text}</strong>'
    return f"<strong>{text}</strong>"


def _level(level: ui.Level) -> str:
    if level.percent is None:
        return '<span class="quiet">unknown</span>'
    value, mark, threshold = f"{level.percent:.1f} %", "", level.threshold
    is_over = threshold is not None and level.percent > threshold
    if threshold is not None:
        at = f"{100 * threshold / level.end:.1f}"
        mark = f'<line x1="{at}" x2="{at}" y1="0" y2="10"/>'
    if is_over:
        value = (
            f'<strong class="bad">{value}</strong><span class="unseen"> above the threshold</span>'
        )
    over, width = (' class="over"' if is_over else ""), f"{100 * level.percent / level.end:.1f}"
    return (
        f'<span class="quiet">{escape(level.amount)}</span> {value}<span class="level"'
        ' aria-hidden="true"><svg viewBox="0 0 100 10" preserveAspectRatio="none">'
        f'<rect{over} width="{width}" height="10"/>{mark}</svg></span>'
    )
