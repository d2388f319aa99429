"""Pages that say why there is nothing to see, and the page that asks for a token."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.pages.document import PAGES
from webhook.pages.page import Page
from webhook.pages.templates import render


def message_page(title: str, text: str) -> Page:
    """Return a page of one message: what is missing, and what to do."""
    return Page(name="", title=title, body=render("message.html", text=text))


def starting_page(name: str, missing: Sequence[str]) -> Page:
    """Return what stands in place of a page until the cluster is read; then an update follows.

    Args:
        name: of the page.
        missing: what is not read yet.
    """
    text = f"The cluster is still being read: {', '.join(missing)}. This page comes by itself."
    return Page(
        name=name, title=PAGES.get(name, name.capitalize()), body=render("message.html", text=text)
    )


def sign_in_page(problem: str = "") -> Page:
    """Return the page with a form for a token, posted to `sign-in`.

    Args:
        problem: why the last token did not do; "" for none.
    """
    return Page(name="", title="Sign in", body=render("sign_in.html", problem=problem))
