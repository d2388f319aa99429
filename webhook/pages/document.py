"""The document around a page: navigation, styles and scripts; and the update of an open page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from webhook.pages.assets import PLOTS, SCRIPT, STYLES, asset_table, style_ids
from webhook.pages.page import Figure, Page
from webhook.pages.templates import render

PAGES: Final[Mapping[str, str]] = {
    "nodes": "Nodes",
    "pod": "Pod",
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


def figures_text(figures: Mapping[str, Figure]) -> str:
    """Return figures as JSON that cannot end the script element it stands in."""
    return msgspec.json.encode(figures).decode().replace("<", "\\u003c")


def _hashes(texts: list[str]) -> str:
    """Return the sources that admit inline texts, `'none'` for no text."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests) or "'none'"
