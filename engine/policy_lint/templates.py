"""Parts of a document that a template was to replace, and that are texts like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.documents import TEMPLATE_HINT, TEMPLATE_MESSAGE, Document, Path, left_over
from engine.policy.findings import Finding

_COPY_OF_THE_DOCUMENT: Final = "kubectl.kubernetes.io/last-applied-configuration"


def template_findings(document: Document) -> Iterator[Finding]:
    """Yield what is left of templates in a document, the first of each text."""
    yield from _below(document.value, ())


def _below(value: object, path: Path) -> Iterator[Finding]:
    match value:
        case dict():
            for key, inner in value.items():
                if key == _COPY_OF_THE_DOCUMENT:
                    continue
                yield from _in_text(key, (*path, key))
                yield from _below(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from _below(inner, (*path, index))
        case str():
            yield from _in_text(value, path)


def _in_text(text: str, path: Path) -> Iterator[Finding]:
    if found := left_over(text):
        message = f"`{found[0]}`: {TEMPLATE_MESSAGE}"
        yield Finding("", message, TEMPLATE_HINT, offset=found.start(), path=path)
