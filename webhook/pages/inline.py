"""What stands in a line, as HTML."""

from __future__ import annotations

import re
from html import escape
from typing import Final

from webhook.pages import ui

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
