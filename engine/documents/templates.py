"""What templates of Helm, of shells and others leave in a document that was not rendered."""

from __future__ import annotations

import re
from typing import Final

TEMPLATE_MESSAGE: Final = "a template was not rendered"
TEMPLATE_HINT: Final = "apply what renders it, such as `helm template` or `envsubst`, first"

# Each is of bounded length: a document that is written to be slow takes no more than its size.
_LEFT_OVER: Final = re.compile(
    r"\{\{[^{}\n]{0,200}\}\}|\{%[^%\n]{0,200}%\}|<%[^%\n]{0,200}%>|\$\{[^{}\n]{0,200}\}"
    r"|\$\([A-Za-z_]\w{0,99}\)|(?<![\w\\^|(])\$[A-Z_][A-Z0-9_]{1,99}\b"
    r"|(?<=['\"])<[A-Za-z][\w .-]{0,99}>(?=['\"])|\A<[A-Za-z][\w .-]{0,99}>\Z"
)


def left_over(text: str) -> re.Match[str] | None:
    """Return the first part of a text that a template was to replace, None if there is none."""
    return _LEFT_OVER.search(text)


def template_hint(text: str, offset: int | None = None) -> str:
    """Return the remedy for a text that a template was to make, "" for any other.

    Args:
        text: the text.
        offset: the character at fault; None for the text as a whole.
    """
    found = left_over(text)
    if found is None or not (offset is None or found.start() <= offset <= found.end()):
        return ""
    return f"{TEMPLATE_MESSAGE}: {TEMPLATE_HINT}"
