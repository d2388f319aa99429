"""What is left of templates in a document, and what `kubectl` reads as something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from engine.documents import TEMPLATE_HINT, TEMPLATE_MESSAGE, Document, Path, left_over
from engine.policy.policy_set import Finding

_COPY_OF_THE_DOCUMENT: Final = "kubectl.kubernetes.io/last-applied-configuration"
_STAND_IN: Final = re.compile(r"\b(?:CHANGE|REPLACE)[-_]?(?:ME|THIS)\b")
_BOOLS_ELSEWHERE: Final = {
    **dict.fromkeys(("on", "y", "yes"), "true"),
    **dict.fromkeys(("n", "no", "off"), "false"),
}
_OCTAL: Final = re.compile(r"[-+]?0[0-7]+")
_EITHER: Final = (("spec", "placement", "schedulerScores"),)
"""Where a bool is as good as its name."""


def template_findings(document: Document) -> Iterator[Finding]:
    """Yield what is left of templates in a document, the first of each text."""
    for path, value, _ in _parts(document.value):
        yield from _left_over(value, path)


def yaml_findings(document: Document) -> Iterator[Finding]:
    """Yield what `kubectl` reads as something else than we do, for it reads YAML 1.1."""
    for path, value, is_key in _parts(document.value):
        written = "" if is_key else document.written(path)
        if path[-1:] == ("expression",) and isinstance(value, str) and document.is_folded(path):
            text = _STRING.sub(_blank, value)
            begin = text.find("//")
            if begin >= 0 and (hidden := _OPERATOR.search(text, begin)):
                message = f"the comment hides `{hidden[0]} ..`: YAML joins the lines to one"
                hint = "write `expression: |-`, which keeps them apart"
                yield Finding("", message, hint, offset=begin, path=path)
        elif isinstance(value, str) and path not in _EITHER:
            if other := _BOOLS_ELSEWHERE.get(written.casefold()):
                message = f"`kubectl` reads `{written}` as {other}, which the API server refuses"
                yield Finding("", message, f'put it in quotes: "{written}"', path=path)
        elif isinstance(value, int) and _OCTAL.fullmatch(written) and int(written, 8) != value:
            message = f"`kubectl` reads `{written}` as {int(written, 8)}, and we as {value}"
            yield Finding("", message, f"write {value}", path=path)


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


_STRING: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_OPERATOR: Final = re.compile(r"&&|\|\||[?:<>=]=?")


def _parts(value: object, path: Path = ()) -> Iterator[tuple[Path, object, bool]]:
    """Yield the keys below a part of a document, and the values that are no mapping or list.

    Each with its path, and whether it is a key.
    """
    match value:
        case dict():
            for key, inner in value.items():
                if key != _COPY_OF_THE_DOCUMENT:
                    yield (*path, key), key, True
                    yield from _parts(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from _parts(inner, (*path, index))
        case _:
            yield path, value, False


def _left_over(value: object, path: Path) -> Iterator[Finding]:
    if not isinstance(value, str):
        return
    if found := left_over(value):
        message = f"`{found[0]}`: {TEMPLATE_MESSAGE}"
        yield Finding("", message, TEMPLATE_HINT, offset=found.start(), path=path)
    elif found := _STAND_IN.search(value):
        message = f"`{found[0]}` stands for something else"
        yield Finding("", message, "write what it stands for", offset=found.start(), path=path)
